//! Which package may use which, and what may be used from outside.

use std::{
    collections::{BTreeMap, BTreeSet},
    env::consts::ARCH,
    fs,
    path::Path,
    process::Command,
    sync::LazyLock,
};

use serde_json::Value;

use crate::tree::{ROOT, report};

/// Every package of the workspace and the others it may depend on (docs/explanation/architecture.md, "The layers").
const MAY_USE: [(&str, &[&str]); 20] = [
    (
        "sluice",
        &[
            "config", "loadtest", "logging", "mig", "oip", "policy", "protocol", "router", "sim",
            "worker",
        ],
    ),
    (
        "router",
        &["config", "control", "logging", "mig", "oip", "policy", "protocol", "serve", "store"],
    ),
    ("config", &["content", "logging", "mig", "oip", "policy", "tls"]),
    ("control", &["config", "etcd", "mig", "policy", "protocol", "store", "tls"]),
    ("serve", &["config", "logging", "oip", "policy", "protocol", "tls"]),
    ("etcd", &["wire"]),
    ("policy", &["mig"]),
    ("oip", &[]),
    ("store", &[]),
    ("logging", &[]),
    ("worker", &["content", "logging", "mig", "oip", "protocol", "simgpu", "tls", "wire"]),
    ("content", &[]),
    ("fakenvml", &["mig"]),
    ("protocol", &["mig"]),
    ("mig", &[]),
    ("simgpu", &["mig"]),
    ("tls", &[]),
    ("wire", &["tls"]),
    ("loadtest", &["oip", "tls", "wire"]),
    ("sim", &["loadtest", "mig", "policy", "simgpu"]),
];

/// Packages that must repeat the workspace's lints, since `forbid` cannot be lifted, and how
/// strictly they treat unsafe code: the one that calls the driver, and the driver's stand-in.
const UNSAFE_CODE: [(&str, &str); 2] = [("worker", "deny"), ("fakenvml", "allow")];

/// Packages that do no I/O, nor anything they are built from.
const PURE: [&str; 5] = ["policy", "oip", "protocol", "mig", "simgpu"];

/// Crates that exist to do I/O, to wait, to log, to count or to throw dice.
const IMPURE: [&str; 12] = [
    "axum",
    "getrandom",
    "hyper",
    "libc",
    "log",
    "metrics",
    "mio",
    "rand",
    "rustix",
    "tokio",
    "tower",
    "tracing",
];

static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let listed = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform"])
        .arg(format!("{ARCH}-unknown-linux-gnu"))
        .current_dir(ROOT)
        .output()
        .expect("cargo runs this test, so it can be run");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    serde_json::from_slice(&listed.stdout).expect("cargo writes JSON")
});

#[test]
fn packages_use_only_those_the_design_lets_them() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    let ours: BTreeSet<&str> = members().map(name).collect();
    let mut problems = Vec::new();
    for package in members() {
        let Some(allowed) = allowed.get(name(package)) else {
            problems.push(format!("{}: not in the design's list of packages", name(package)));
            continue;
        };
        for used in direct(package).filter(|used| ours.contains(used)) {
            if !allowed.contains(&used) {
                problems.push(format!("{} uses {used}", name(package)));
            }
        }
    }
    report(&problems);
}

#[test]
fn policy_is_built_from_the_mig_tables_and_serde_alone() {
    let policy = members().find(|package| name(package) == "policy").expect("policy is a member");
    let extra: Vec<String> =
        direct(policy).filter(|used| !["mig", "serde"].contains(used)).map(str::to_owned).collect();
    report(&extra);
}

#[test]
fn pure_packages_reach_no_crate_that_does_io() {
    let mut problems = Vec::new();
    for package in members().filter(|package| PURE.contains(&name(package))) {
        for reached in reach(id(package)) {
            let reached = name(by_id(reached));
            if IMPURE.contains(&reached) {
                problems.push(format!("{} reaches {reached}", name(package)));
            }
        }
    }
    report(&problems);
}

#[test]
fn every_package_takes_the_workspace_lints() {
    let manifest = |path: &Path| -> toml::Table {
        let text = fs::read_to_string(path).expect("cargo has just read it");
        text.parse().expect("cargo has just parsed it")
    };
    let root = manifest(&Path::new(ROOT).join("Cargo.toml"));
    let shared = root["workspace"]["lints"].as_table().expect("the workspace has lints");
    let mut problems = Vec::new();
    for package in members() {
        let own = manifest(Path::new(text(package, "manifest_path")));
        let own = own.get("lints").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        let exception = UNSAFE_CODE.iter().find(|(exempt, _)| *exempt == name(package));
        let wanted = match exception {
            Some((_, level)) => {
                let mut lints = shared.clone();
                lints["rust"]["unsafe_code"] = (*level).into();
                lints
            }
            None => toml::Table::from_iter([("workspace".to_owned(), true.into())]),
        };
        if own != wanted {
            problems.push(format!("{}: other lints than the workspace's", name(package)));
        }
    }
    report(&problems);
}

#[test]
fn every_licence_is_one_that_deny_toml_allows() {
    let deny = deny();
    let allowed: Vec<&str> = deny["licenses"]["allow"]
        .as_array()
        .expect("licenses.allow is a list")
        .iter()
        .filter_map(toml::Value::as_str)
        .collect();
    let mut problems = Vec::new();
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence, &allowed) {
            problems.push(format!("{}: {licence}", name(package)));
        }
    }
    report(&problems);
}

#[test]
fn every_crate_is_ours_or_from_crates_io_and_none_is_banned() {
    let deny = deny();
    let banned: Vec<&str> = deny["bans"]["deny"]
        .as_array()
        .expect("bans.deny is a list")
        .iter()
        .filter_map(|ban| ban["crate"].as_str())
        .collect();
    let mut problems = Vec::new();
    for package in packages() {
        match package["source"].as_str() {
            None | Some("registry+https://github.com/rust-lang/crates.io-index") => {}
            Some(source) => problems.push(format!("{}: from {source}", name(package))),
        }
        if banned.contains(&name(package)) {
            problems.push(format!("{}: banned by deny.toml", name(package)));
        }
    }
    report(&problems);
}

#[test]
fn a_licence_is_allowed_if_its_whole_expression_is() {
    let allowed = ["MIT", "Apache-2.0 WITH LLVM-exception"];
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "GPL-3.0/MIT",
        "(MIT OR GPL-3.0) AND MIT",
        "Apache-2.0 WITH LLVM-exception AND MIT",
    ] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-3.0) OR GPL-2.0", "Apache-2.0", ""] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

fn deny() -> toml::Table {
    let text = fs::read_to_string(Path::new(ROOT).join("deny.toml")).expect("deny.toml exists");
    text.parse().expect("deny.toml is TOML")
}

/// Whether an SPDX expression can be met from `allowed`; `/` is the old way to write OR.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest, allowed) && rest.is_empty()
}

fn any_of(rest: &mut &[&str], allowed: &[&str]) -> bool {
    let mut met = all_of(rest, allowed);
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        met |= all_of(rest, allowed);
    }
    met
}

fn all_of(rest: &mut &[&str], allowed: &[&str]) -> bool {
    let mut met = one(rest, allowed);
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        met &= one(rest, allowed);
    }
    met
}

fn one(rest: &mut &[&str], allowed: &[&str]) -> bool {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let met = any_of(rest, allowed);
            *rest = rest.strip_prefix(&[")"]).unwrap_or_default();
            met
        }
        [licence, "WITH", exception, tail @ ..] => {
            *rest = tail;
            allowed.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, tail @ ..] => {
            *rest = tail;
            allowed.contains(licence)
        }
        [] => false,
    }
}

fn packages() -> impl Iterator<Item = &'static Value> {
    METADATA["packages"].as_array().expect("metadata lists packages").iter()
}

fn members() -> impl Iterator<Item = &'static Value> {
    packages().filter(|package| package["source"].is_null())
}

/// The names of what `package` is built from; what only its tests use is its own affair.
fn direct(package: &'static Value) -> impl Iterator<Item = &'static str> {
    let listed = package["dependencies"].as_array().expect("a package lists its dependencies");
    let shipped = |dependency: &&Value| dependency["kind"].as_str() != Some("dev");
    listed.iter().filter(shipped).map(name)
}

/// The ids of everything `from` is built from, however far.
fn reach(from: &'static str) -> BTreeSet<&'static str> {
    let nodes = METADATA["resolve"]["nodes"].as_array().expect("metadata resolves");
    let mut found = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(next) = ahead.pop() {
        let node = nodes.iter().find(|node| id(node) == next).expect("every id has a node");
        for edge in node["deps"].as_array().expect("a node lists its edges") {
            let kinds = edge["dep_kinds"].as_array().expect("an edge lists its kinds");
            let used = text(edge, "pkg");
            if kinds.iter().any(|kind| kind["kind"].is_null()) && found.insert(used) {
                ahead.push(used);
            }
        }
    }
    found
}

fn by_id(wanted: &str) -> &'static Value {
    packages().find(|package| id(package) == wanted).expect("every id has a package")
}

fn name(value: &'static Value) -> &'static str {
    text(value, "name")
}

fn id(value: &'static Value) -> &'static str {
    text(value, "id")
}

fn text(value: &'static Value, key: &str) -> &'static str {
    value[key].as_str().expect("cargo metadata has it as text")
}

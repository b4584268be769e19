//! The state document as dashboards, scripts and the console read it: no field comes, goes or
//! changes its type unseen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::{Value, json};

use crate::{
    client::{Body, Client},
    program::{Program, ROOT},
    secrets::hash,
    setup::ONE_GPU,
    split::{TOKEN, worker},
    training::{Counting, lender},
    wait::eventually,
};

/// One line for each path: the path, then the types it may have.
const SHAPE: &str = "tests/whole/document.txt";
/// Stands before paths that are there only at times.
const SOMETIMES: &str = "? ";

#[test]
fn state_document_keeps_its_fields_and_their_types() {
    let (program, _beta) = busy();
    let golden = golden();
    // A write-out of the whole first: what is missing or new is then seen at once.
    let found = eventually("everything that is always there is there", || {
        let found = shape(&document(&program));
        let complete = golden.iter().all(|(path, one)| one.sometimes || found.contains_key(path));
        (complete || std::env::var_os("UPDATE_DOCS").is_some()).then_some(found)
    });
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let line = |(path, types): (&String, &Types)| format!("{path}: {}\n", join(types));
        fs::write(Path::new(ROOT).join(SHAPE), found.iter().map(line).collect::<String>()).unwrap();
        return;
    }
    for (path, types) in &found {
        let known = golden.get(path).unwrap_or_else(|| panic!("{path} is new; add it to {SHAPE}"));
        let (is, may) = (join(types), join(&known.types));
        assert!(types.is_subset(&known.types), "{path} is {is}, and {SHAPE} has {may}");
    }
}

type Types = BTreeSet<String>;

/// What the document may have at a path.
struct Known {
    types: Types,
    sometimes: bool,
}

fn golden() -> BTreeMap<String, Known> {
    let text = fs::read_to_string(Path::new(ROOT).join(SHAPE)).unwrap_or_default();
    let lines = text.lines().map(|line| {
        let sometimes = line.starts_with(SOMETIMES);
        let (path, types) = line.trim_start_matches(SOMETIMES).split_once(": ").unwrap();
        let types = types.split(" or ").map(str::to_owned).collect();
        (path.to_owned(), Known { types, sometimes })
    });
    lines.collect()
}

fn join(types: &Types) -> String {
    types.iter().map(String::as_str).collect::<Vec<_>>().join(" or ")
}

/// A router with something in every part of its document: a model with a cache, a lent slice, a
/// pin, a tenant, and a second worker that is drained.
fn busy() -> (Program, Program) {
    let setup = lender("lease_s = 600")
        .sleeper("cached", 5, "slo_ms = 20000\ncache_mib = 1\nmemory_mib = 5000")
        .tables(&format!("[[tenant]]\nname = \"shop\"\nkey_sha256 = \"{}\"", hash("shop")))
        .router("join_listen = \"127.0.0.1:0\"")
        .router("join_token_file = \"token\"");
    setup.folder().write("token", TOKEN);
    let mut program = setup.launch();
    program.wait_listening();
    let door = program.wait_word("join ");
    program.wait_word("ready");
    let mut beta = worker(&door, TOKEN, "beta", ONE_GPU);
    beta.wait_word("worker ");
    let drain = "/admin/v1/workers/beta/drain";
    eventually("beta is drained", || {
        (post(&program, drain, &json!({"apply": true, "by": "ada"})) == 200).then_some(())
    });
    for model in ["m", "cached"] {
        let key = Body::row().with("authorization", "Bearer shop");
        assert_eq!(program.client().infer(model, &key).status, 200);
    }
    let slices = program.slices();
    let serves = |slice: &&Value| slice["replicas"][0]["model"] == "m";
    let position = slices.iter().find(serves).unwrap()["position"].clone();
    let pin = json!({"worker": "local", "gpu": 0, "position": position, "apply": true});
    assert_eq!(post(&program, "/admin/v1/models/m/pin", &pin), 200);
    let submission = json!({"slices": 1, "tenant": "shop"});
    let training =
        Counting::submit_with(&program, submission, &program.folder().path().join("state/run"));
    training.wait_half(&program);
    (program, beta)
}

fn post(program: &Program, path: &str, body: &Value) -> u16 {
    Client::connect(program.admin()).post(path, &[], body.to_string().as_bytes()).status
}

fn document(program: &Program) -> Value {
    program.ask_admin("/admin/v1/state").json()
}

fn shape(document: &Value) -> BTreeMap<String, Types> {
    let mut found = BTreeMap::new();
    note(document, "state", &mut found);
    found
}

fn note(value: &Value, path: &str, found: &mut BTreeMap<String, Types>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "fraction",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    found.entry(path.to_owned()).or_default().insert(kind.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().for_each(|item| note(item, &format!("{path}[]"), found))
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| note(value, &format!("{path}.{name}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

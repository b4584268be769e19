//! The house: modules of a crate depend one way, crates stay small, and one word names one thing.
//!
//! The module graph is read from the text: a top module uses another if it names it as `crate::it`.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{File, files, report};

/// Lines of Rust a crate may have under `src`; policy, which is arithmetic alone, may have more.
const CRATE_LINES: usize = 15_000;
const UNLIMITED: &str = "policy";

/// Words of the domain, each for one public type in the whole workspace.
const NOUNS: [&str; 18] = [
    "Batch", "Demand", "Fleet", "Gpu", "Job", "Lane", "Model", "Order", "Plan", "Replica",
    "Report", "Request", "Seat", "Slice", "Standing", "Tenant", "Worker", "World",
];

/// How many public types still have one of those names. May only shrink.
const REPEATED: [(&str, usize); 10] = [
    ("Batch", 2),
    ("Gpu", 3),
    ("Model", 3),
    ("Order", 2),
    ("Plan", 3),
    ("Replica", 3),
    ("Report", 4),
    ("Request", 2),
    ("Slice", 5),
    ("Tenant", 2),
];

#[test]
fn modules_of_a_crate_depend_one_way() {
    let tree = files();
    let mut problems = Vec::new();
    for (name, sources) in crates(&tree) {
        let knots = knots(&graph(&sources));
        problems.extend(knots.iter().map(|knot| format!("{name}: {} need each other", list(knot))));
    }
    report(&problems);
}

#[test]
fn crates_stay_under_15_000_lines() {
    let tree = files();
    let mut problems = Vec::new();
    for (name, sources) in crates(&tree) {
        let lines: usize = sources.iter().map(|source| source.file.lines().count()).sum();
        if lines > CRATE_LINES && name != UNLIMITED {
            problems.push(format!("{name}: {lines} lines; at most {CRATE_LINES}"));
        }
    }
    report(&problems);
}

#[test]
fn public_nouns_of_the_domain_are_defined_once() {
    let tree = files();
    let mut defined: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in crates(&tree).values().flatten() {
        let text = source.file.text().unwrap_or_default();
        for noun in text.lines().filter_map(public_type).filter(|name| NOUNS.contains(name)) {
            defined.entry(noun).or_default().push(&source.file.path);
        }
    }
    let mut problems = Vec::new();
    for noun in NOUNS {
        let places = defined.get(noun).map(Vec::as_slice).unwrap_or_default();
        let repeated = REPEATED.iter().find(|(name, _)| *name == noun);
        let most = repeated.map_or(1, |(_, times)| *times);
        let found = places.len();
        if found > most {
            problems.push(format!("{found} types named {noun}: {}", places.join(", ")));
        } else if repeated.is_some() && found < 2 {
            problems.push(format!("{noun} is used once; take it out of REPEATED"));
        }
    }
    report(&problems);
}

#[test]
fn a_module_uses_what_it_names_outside_comments_and_tests() {
    let text = "\
use crate::{
    alpha::{self, Beta},
    gamma,
};
// crate::not_this
fn f() { crate::delta::g(); }

#[cfg(test)]
mod tests { use crate::only_there; }
";
    let expected = ["alpha", "delta", "gamma"].map(str::to_owned);
    assert_eq!(used(text), BTreeSet::from(expected));
}

#[test]
fn modules_that_reach_each_other_are_one_knot() {
    let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")];
    let mut graph = BTreeMap::<String, BTreeSet<String>>::new();
    for (from, to) in edges {
        graph.entry(from.to_owned()).or_default().insert(to.to_owned());
        graph.entry(to.to_owned()).or_default();
    }
    let knot = ["a", "b", "c"].map(str::to_owned);
    assert_eq!(knots(&graph), [BTreeSet::from(knot)]);
}

struct Source<'a> {
    file: &'a File,
    /// Its path from `src` on.
    within: &'a str,
}

fn crates(tree: &[File]) -> BTreeMap<String, Vec<Source<'_>>> {
    let mut folders = Vec::new();
    for file in tree.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        let manifest: toml::Table =
            file.text().unwrap_or_default().parse().expect("a manifest is TOML");
        let name = manifest.get("package").and_then(|package| package["name"].as_str());
        if let Some(name) = name {
            let folder = file.path.strip_suffix("Cargo.toml").expect("it ends so");
            folders.push((format!("{folder}src/"), name.to_owned()));
        }
    }
    let mut found = BTreeMap::<String, Vec<Source<'_>>>::new();
    for file in tree.iter().filter(|file| file.path.ends_with(".rs")) {
        let home = folders.iter().find(|(folder, _)| file.path.starts_with(folder.as_str()));
        if let Some((folder, name)) = home {
            let within = &file.path[folder.len()..];
            found.entry(name.clone()).or_default().push(Source { file, within });
        }
    }
    found
}

/// Which top module of a crate uses which.
fn graph(sources: &[Source<'_>]) -> BTreeMap<String, BTreeSet<String>> {
    let mut graph = BTreeMap::<String, BTreeSet<String>>::new();
    for source in sources {
        let parts: Vec<&str> = source.within.split('/').collect();
        let module = parts[0].trim_end_matches(".rs");
        if matches!(module, "lib" | "main") {
            continue;
        }
        let uses = graph.entry(module.to_owned()).or_default();
        if !parts.contains(&"tests") && !source.within.ends_with("tests.rs") {
            uses.extend(used(source.file.text().unwrap_or_default()));
        }
    }
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    for (module, uses) in &mut graph {
        uses.retain(|used| used != module && modules.contains(used));
    }
    graph
}

fn used(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: Vec<&str> =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut names = BTreeSet::new();
    for (start, root) in code.match_indices("crate::") {
        let rest = &code[start + root.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(members(group)),
            None => names.extend(word(rest)),
        }
    }
    names
}

/// The first word of each member of a group of imports, whose opening brace was read.
fn members(group: &str) -> BTreeSet<String> {
    let (mut depth, mut member, mut names) = (0_usize, String::new(), BTreeSet::new());
    for letter in group.chars() {
        match letter {
            '}' if depth == 0 => break,
            ',' if depth == 0 => names.extend(word(&std::mem::take(&mut member))),
            '{' => depth += 1,
            '}' => depth -= 1,
            letter => member.push(letter),
        }
    }
    names.extend(word(&member));
    names
}

fn word(text: &str) -> Option<String> {
    let text = text.trim_start();
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let word = &text[..end.unwrap_or(text.len())];
    (!word.is_empty()).then(|| word.to_owned())
}

/// Sets of more than one module that all reach each other.
fn knots(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (module.as_str(), reached(graph, module))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (module, reaches) in &reach {
        let back = reaches.iter().filter(|other| reach[*other].contains(module));
        let knot: BTreeSet<String> = back.map(|other| (*other).to_owned()).collect();
        if knot.len() > 1 && !found.contains(&knot) {
            found.push(knot);
        }
    }
    found
}

fn reached<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'a str> {
    let (mut found, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(next) = ahead.pop() {
        for used in graph.get(next).into_iter().flatten() {
            if found.insert(used.as_str()) {
                ahead.push(used);
            }
        }
    }
    found
}

/// The name of the public type that a line defines, if it defines one.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

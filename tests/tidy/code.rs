//! Sizes, and words that must not be left in code.

use crate::tree::{File, files, files_of, report};

const FILE_LINES: usize = 500;
const TEST_FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;

/// Written in halves, so that this file does not find itself.
const UNFINISHED: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimplemen", "ted!("),
    concat!("db", "g!("),
    concat!("#[ign", "ore"),
];

/// What would let a decision depend on anything but its arguments. A shared value that nobody can
/// change is none of it, so `Arc` is allowed and what hides a change is not.
const IMPURE: [&str; 13] = [
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "Atomic",
    "Mutex",
    "OnceLock",
    "RwLock",
    "std::thread",
    "Instant",
    "SystemTime",
    "thread_local!",
];

#[test]
fn no_source_file_is_longer_than_500_lines_without_its_tests() {
    let mut problems = Vec::new();
    for file in files_of("rs").iter().chain(&files_of("py")) {
        let lines = lines_without_tests(file);
        let only_tests = file.path.contains("tests/") || file.path.ends_with("/tests.rs");
        let most = if only_tests { TEST_FILE_LINES } else { FILE_LINES };
        if lines > most {
            problems.push(format!("{}: {lines} lines; at most {most}", file.path));
        }
    }
    report(&problems);
}

#[test]
fn every_function_is_at_most_70_lines() {
    let mut problems = Vec::new();
    for file in files_of("rs") {
        for (line, length) in functions(file.text().unwrap_or_default()) {
            if length > FUNCTION_LINES {
                problems.push(format!("{}:{line}: {length} lines", file.path));
            }
        }
    }
    report(&problems);
}

#[test]
fn nothing_is_left_unfinished_or_skipped() {
    let mut problems = Vec::new();
    for file in files() {
        for (number, line) in file.lines() {
            for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
                problems.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    report(&problems);
}

#[test]
fn every_silenced_lint_gives_its_reason() {
    let mut problems = Vec::new();
    for file in files_of("rs") {
        let text = file.text().unwrap_or_default();
        let openings = ["#[allow(", "#![allow(", "#[expect(", "#![expect("]
            .map(|open| text.match_indices(open));
        for (start, _) in openings.into_iter().flatten() {
            let attribute = text[start..].split(")]").next().unwrap_or_default();
            if text[..start].ends_with('"') || attribute.contains("reason =") {
                continue;
            }
            let line = text[..start].matches('\n').count() + 1;
            problems.push(format!("{}:{line}: no reason", file.path));
        }
    }
    report(&problems);
}

#[test]
fn only_the_driver_module_may_use_unsafe_code() {
    let lifts = |line: &str| line.trim_start().starts_with('#') && line.contains("(unsafe_code");
    let mut problems = Vec::new();
    for file in files_of("rs").iter().filter(|file| file.path != "worker/src/gpu/nvml/raw.rs") {
        for (number, _) in file.lines().filter(|(_, line)| lifts(line)) {
            problems.push(format!("{}:{number}: lifts the ban on unsafe code", file.path));
        }
    }
    report(&problems);
}

#[test]
fn every_module_says_what_it_is_for() {
    let tests = |path: &str| path.contains("tests/") || path.ends_with("/tests.rs");
    let mut problems = Vec::new();
    for file in files_of("rs").iter().filter(|file| !tests(&file.path)) {
        let documented = file.lines().any(|(_, line)| line.starts_with("//! "));
        if !documented {
            problems.push(format!("{}: no line that starts with //!", file.path));
        }
    }
    report(&problems);
}

#[test]
fn policy_names_no_clock_and_no_io() {
    let mut problems = Vec::new();
    let policy = |file: &File| file.path.starts_with("router/policy/src/");
    for file in files_of("rs").iter().filter(|file| policy(file)) {
        let comment = |line: &str| line.trim_start().starts_with("//");
        for (number, line) in file.lines().filter(|(_, line)| !comment(line)) {
            for word in IMPURE.iter().filter(|word| line.contains(**word)) {
                problems.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    report(&problems);
}

/// Where control rounds run: in the router, and in the simulator.
const ROUNDS: [&str; 2] = ["router/control/src/round/mod.rs", "loadtest/sim/src/control.rs"];
/// What decides parts of a round.
const PARTS: [&str; 3] = [" place(&", "loan::decide(", "wanted_back("];

#[test]
fn router_and_simulator_decide_by_the_same_round() {
    let mut problems = Vec::new();
    for file in files_of("rs") {
        let (path, text) = (file.path.as_str(), file.text().unwrap_or_default());
        let calls = text.contains(" decide(&world, ") && text.contains(" desired(");
        if ROUNDS.contains(&path) && !(calls && text.contains("policy::round")) {
            problems.push(format!("{path}: does not call policy::round's decide and desired"));
        }
        // Whether a file's models fit is asked before there is a fleet.
        let beside = path.ends_with("whatif/fits.rs") || path.contains("/tests");
        if path.starts_with("router/control/src/") && !beside {
            let parts = PARTS.iter().filter(|part| text.contains(**part));
            problems.extend(parts.map(|part| format!("{path}: decides beside the round: {part}")));
        }
    }
    report(&problems);
}

#[test]
fn a_function_is_measured_from_its_name_to_its_brace() {
    let text = "\
trait A {
    fn bodyless(
        &self,
    ) -> u8;
    pub(crate) const fn short() {}
}

pub async fn long(
    a: u8,
) {
    if a > 0 {
    }
}
";
    assert_eq!(functions(text), [(5, 1), (8, 6)]);
}

fn lines_without_tests(file: &File) -> usize {
    let lines: Vec<&str> = file.lines().map(|(_, line)| line).collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

/// The first line and the length of every function with a body, in text that rustfmt has laid out.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| names_function(line)) {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut opened = false;
        for (offset, next) in lines[index..].iter().enumerate() {
            opened |= next.contains('{');
            let one_line = offset == 0 && opened && next.ends_with('}');
            let closed = offset > 0 && next.strip_prefix(indent) == Some("}");
            if one_line || closed {
                found.push((index + 1, offset + 1));
            }
            if one_line || closed || (!opened && next.ends_with(';')) {
                break;
            }
        }
    }
    found
}

fn names_function(line: &str) -> bool {
    let words = line.trim_start();
    let Some(name) = words.find("fn ") else { return false };
    let qualifier =
        |word: &str| matches!(word, "const" | "async" | "unsafe") || word.starts_with("pub");
    words[..name].split_whitespace().all(qualifier)
}

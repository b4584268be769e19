//! Texts that people read: no retired words, no one-word log messages, test names that fit a line.
//!
//! docs/explanation/glossary.md has the words to use. A crate in one of the lists still has findings;
//! a test fails when a listed crate is clean, so the lists only shrink.

use std::collections::BTreeSet;

use crate::tree::{File, files, files_of, report};

/// Written in halves, so that this file does not find itself.
const RETIRED: [&str; 8] = [
    concat!(" an", "ew"),
    concat!(" sh", "all "),
    concat!(" let ", "be"),
    concat!("dep", "osed"),
    concat!("of no ", "use"),
    concat!(" no ", "more"),
    concat!(" to", "ld"),
    concat!(" in ", "vain"),
];

const TEST_NAME: usize = 60;

/// Crates whose string literals still have retired words.
const WORDY: &[&str] = &["router", "router/control"];
/// Crates that still have log messages of one word.
const TERSE: &[&str] = &["router/control", "router/serve"];
/// Crates that still have test names that are too long, or named by a list.
const LONG_NAMES: &[&str] = &["router", "router/control", "router/serve"];

#[test]
fn string_literals_have_no_retired_words() {
    judge(WORDY, |file| {
        let found = literals(file).flat_map(|(line, text)| {
            let words = RETIRED.iter().filter(move |word| has(&text, word));
            words.map(move |word| format!("{line}: {word:?}")).collect::<Vec<_>>()
        });
        found.collect()
    });
}

#[test]
fn log_messages_have_more_than_one_word() {
    judge(TERSE, |file| {
        let calls = log_messages(file.text().unwrap_or_default());
        let terse = calls.into_iter().filter(|(_, message)| !message.contains(' '));
        terse.map(|(line, message)| format!("{line}: {message:?}")).collect()
    });
}

#[test]
fn test_names_fit_and_are_not_numbered() {
    judge(LONG_NAMES, |file| {
        let names = test_names(file.text().unwrap_or_default());
        let wrong = |name: &str| name.len() > TEST_NAME || name.starts_with(concat!("ask", "_"));
        let found = names.into_iter().filter(|(_, name)| wrong(name));
        found.map(|(line, name)| format!("{line}: {name} ({})", name.len())).collect()
    });
}

#[test]
fn documents_have_no_retired_words() {
    // The glossary names them, the changelog keeps old entries, logging maps old messages to new.
    let exempt = |path: &str| {
        path.ends_with("glossary.md") || path == "CHANGELOG.md" || path.ends_with("logging.md")
    };
    let mut problems = Vec::new();
    for file in files_of("md").iter().filter(|file| !exempt(&file.path)) {
        for (number, line) in file.lines() {
            for word in RETIRED.iter().filter(|word| has(line, word)) {
                problems.push(format!("{}:{number}: {word:?}", file.path));
            }
        }
    }
    report(&problems);
}

#[test]
fn log_messages_of_the_reference_are_in_the_code() {
    let code: String = files_of("rs").iter().filter_map(|file| file.text()).collect();
    let mut problems = Vec::new();
    for file in files_of("md").iter().filter(|file| file.path == "docs/reference/logging.md") {
        let map =
            file.lines().skip_while(|(_, line)| !line.starts_with("## Messages that changed"));
        for (number, line) in map {
            let now = line.split(" | ").nth(1).unwrap_or_default();
            let messages = now.split('`').skip(1).step_by(2);
            let gone = messages.filter(|message| !code.contains(&format!("\"{message}\"")));
            problems.extend(gone.map(|message| format!("{}:{number}: {message}", file.path)));
        }
    }
    report(&problems);
}

#[test]
fn pages_open_with_what_they_are_for() {
    let page = |file: &&File| file.path.starts_with("docs/") && file.path.ends_with(".md");
    let stub = |text: &str| text.contains("The old address stays for one release");
    let mut problems = Vec::new();
    for file in files().iter().filter(page) {
        let text = file.text().unwrap_or_default();
        let opening: Vec<&str> =
            text.lines().skip(1).skip_while(|line| line.is_empty()).take(3).collect();
        let whole = opening.len() == 3 && opening.iter().all(|line| !line.is_empty());
        if !text.starts_with("# ") || !(whole || stub(text)) {
            problems.push(format!("{}: no title and three opening lines", file.path));
        }
    }
    report(&problems);
}

#[test]
fn literals_log_messages_and_test_names_are_found() {
    let text = "// \"no\"\ntracing::info!(a = 1, \"so it is\");\nwarn!(\n    %error,\n    \"job\"\n);\n\
                #[test]\nfn a_name() {}\n#[tokio::test(x)]\nasync fn other() {}\n";
    let file = File { path: "x.rs".to_owned(), bytes: text.as_bytes().to_vec() };
    let found: Vec<(usize, String)> = literals(&file).collect();
    assert_eq!(found, [(2, "so it is".to_owned()), (5, "job".to_owned())]);
    let messages = log_messages(text);
    assert_eq!(messages, [(2, "so it is".to_owned()), (3, "job".to_owned())]);
    let names = test_names(text);
    assert_eq!(names, [(8, "a_name".to_owned()), (10, "other".to_owned())]);
}

fn has(text: &str, word: &str) -> bool {
    format!(" {text} ").replace(concat!(" no ", "more than"), "").contains(word)
}

/// Fails on findings outside the listed crates, and on listed crates without any.
fn judge(listed: &[&str], find: impl Fn(&File) -> Vec<String>) {
    let mut problems = Vec::new();
    let mut unclean = BTreeSet::new();
    for file in files_of("rs") {
        let crate_name = crate_of(&file.path);
        for found in find(&file) {
            if listed.contains(&crate_name.as_str()) {
                unclean.insert(crate_name.clone());
            } else {
                problems.push(format!("{}:{found}", file.path));
            }
        }
    }
    let exists = |name: &str| files_of("rs").iter().any(|file| crate_of(&file.path) == name);
    let clean = listed.iter().filter(|name| !unclean.contains(**name) && exists(name));
    problems.extend(clean.map(|name| format!("{name} is clean: take it off the list")));
    report(&problems);
}

/// The folder of the crate, or of the test binary, that a source file belongs to.
fn crate_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let inner = |second: &&str| !["src", "tests", "benches", "examples"].contains(second);
    match parts.as_slice() {
        [first, second, _, ..] if inner(second) && *first != "src" => format!("{first}/{second}"),
        [first, ..] => (*first).to_owned(),
        [] => String::new(),
    }
}

/// Every string literal that stands on one line, with its line, outside comments.
fn literals(file: &File) -> impl Iterator<Item = (usize, String)> {
    let code = file.lines().filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.flat_map(|(number, line)| {
        let line = line.replace("\\\"", "'").replace("'\"'", "' '");
        let found: Vec<String> = line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
        found.into_iter().map(move |text| (number, text))
    })
}

/// The message of each call of a logging macro: the last literal before the call ends.
fn log_messages(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for name in ["trace!(", "debug!(", "info!(", "warn!(", "error!("] {
        for (start, _) in text.match_indices(name) {
            let alone = !text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let rest = &text[start + name.len()..];
            let mut open = 1;
            let end = rest.find(|c| {
                open += i32::from(c == '(') - i32::from(c == ')');
                open == 0
            });
            let Some(call) = end.map(|end| &rest[..end]).filter(|_| alone) else { continue };
            let parts: Vec<&str> = call.split('"').collect();
            let message = parts.len().checked_sub(2).filter(|last| last % 2 == 1);
            if let Some(message) = message.and_then(|last| parts.get(last)) {
                let line = text[..start].matches('\n').count() + 1;
                found.push((line, (*message).to_owned()));
            }
        }
    }
    found.sort_unstable();
    found
}

fn test_names(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_test = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let name = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
        if let (true, Some(name)) = (is_test, name) {
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            found.push((index + 1, name[..end].to_owned()));
            is_test = false;
        }
    }
    found
}

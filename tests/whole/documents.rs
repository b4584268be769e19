//! Every command that a page shows is one that the program takes.

use std::{collections::BTreeMap, fs, path::Path};

use crate::program::{ROOT, sluice};

/// Commands that are shown and need not parse, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("sluice COMMAND --help", "stands for every command"),
    ("sluice job show ID", "stands for every job"),
];
/// What is said of a command that is only mentioned: it lacks what its user has yet to add.
const INCOMPLETE: [&str; 2] = ["arguments were not provided", "a value is required"];
/// What stands for something else in a line: such a line shows a form, not a command.
const ABBREVIATED: &[&str] = &["...", "…", "|list", "[--", "<"];

fn pages(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            pages(&path, found);
        } else if name.ends_with(".md") && name != "CHANGELOG.md" {
            found.push(path);
        }
    }
}

/// The commands of a page, and whether each is only mentioned: between backquotes, rather than in
/// a shell's block.
fn commands(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for (index, part) in text.split("```").enumerate() {
        if index % 2 == 0 {
            let spans = part.split('`').skip(1).step_by(2);
            found.extend(spans.map(|span| (span.to_owned(), true)));
        } else if let Some(block) =
            part.strip_prefix("sh\n").or_else(|| part.strip_prefix("console\n"))
        {
            let block = block.replace("\\\n", " ");
            found.extend(block.lines().map(|line| (line.to_owned(), false)));
        }
    }
    let typed = |(line, mentioned): (String, bool)| {
        let line = line.trim().trim_start_matches("$ ");
        let line = line.replace("cargo run --release -- ", "sluice ");
        line.starts_with("sluice ").then_some((line, mentioned))
    };
    found.into_iter().filter_map(typed).collect()
}

/// The words of a command as a shell has them, up to the end of the command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '>') => {
                // The number before it is a descriptor.
                word = word.filter(|word| word.parse::<u8>().is_err());
                break;
            }
            (None, '|' | ';' | '&') => break,
            (None, '#') if word.is_none() => break,
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            (Some(_) | None, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn every_command_of_the_pages_parses() {
    let mut files = Vec::new();
    pages(Path::new(ROOT), &mut files);
    let mut shown: BTreeMap<Vec<String>, (String, bool)> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (line, mentioned) in commands(&text) {
            let excepted = EXCEPTIONS.iter().any(|(start, _)| line.starts_with(start));
            if !excepted && !ABBREVIATED.iter().any(|sign| line.contains(sign)) {
                let origin = (format!("{}: {line}", file.display()), mentioned);
                let known = shown.entry(words(&line)).or_insert(origin);
                known.1 &= mentioned;
            }
        }
    }
    assert!(shown.len() > 60, "only {} commands were found", shown.len());
    let mut wrong = Vec::new();
    for (words, (origin, mentioned)) in shown {
        let words = words.iter().skip(1).map(String::as_str);
        let args: Vec<&str> = std::iter::once("parses").chain(words).collect();
        let output = sluice(&args);
        let told = String::from_utf8_lossy(&output.stderr);
        let lacks = INCOMPLETE.iter().any(|what| told.contains(what));
        if output.status.code() != Some(0) && !(mentioned && lacks) {
            wrong.push(format!("{origin}\n{told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! Documents and plain text: links that lead somewhere, nothing of one machine, nothing sloppy.

use std::{env, path::Path};

use crate::tree::{File, ROOT, files, files_of, report};

const FILE_BYTES: usize = 1 << 20;

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let mut problems = Vec::new();
    for file in files_of("md") {
        let folder = Path::new(&file.path).parent().unwrap_or_else(|| Path::new(""));
        for (number, target) in links(file.text().unwrap_or_default()) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let relative =
                if path.is_empty() { file.path.clone().into() } else { folder.join(path) };
            let absolute = Path::new(ROOT).join(relative);
            let text = std::fs::read_to_string(&absolute).unwrap_or_default();
            let missing = if !absolute.exists() {
                "no such file"
            } else if !heading.is_empty() && !headings(&text).any(|found| found == heading) {
                "no such heading"
            } else {
                continue;
            };
            problems.push(format!("{}:{number}: {target}: {missing}", file.path));
        }
    }
    report(&problems);
}

#[test]
fn files_named_in_the_walks_exist() {
    let page = "docs/explanation/architecture.md";
    let text = std::fs::read_to_string(Path::new(ROOT).join(page)).expect("the page exists");
    let walks = text.split("\n## ").find(|part| part.starts_with("Four walks"));
    let walks = walks.expect("the page has walks");
    let names = walks.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs"));
    let gone = names.filter(|name| !Path::new(ROOT).join(name).exists());
    report(&gone.map(|name| format!("{page}: {name} moved")).collect::<Vec<_>>());
    let request = walks.split("### ").nth(1).unwrap_or_default();
    let steps = request.lines().filter(|line| line.contains(". `")).count();
    assert!((8..15).contains(&steps), "the walk of a request has {steps} files");
}

#[test]
fn no_line_ends_in_blanks_and_every_file_ends_its_last_line() {
    let mut problems = Vec::new();
    let as_it_came = |file: &File| file.path.ends_with(".csv") || file.path.contains("/seeds/");
    for file in files().iter().filter(|file| !as_it_came(file)) {
        for (number, line) in file.lines().filter(|(_, line)| line.ends_with([' ', '\t'])) {
            problems.push(format!("{}:{number}: ends in blanks: {line:?}", file.path));
        }
        let text = file.text().unwrap_or_default();
        if text.contains('\r') {
            problems.push(format!("{}: has carriage returns", file.path));
        }
        if !text.is_empty() && !text.ends_with('\n') {
            problems.push(format!("{}: its last line has no end", file.path));
        }
    }
    report(&problems);
}

#[test]
fn no_path_of_one_machine_is_in_the_tree() {
    let mut paths: Vec<String> =
        ["home", "root", "Users"].map(|folder| format!("/{folder}/")).into();
    paths.push(ROOT.to_owned());
    paths.extend(env::var("HOME").into_iter().filter(|home| home.len() > 1));
    let mut problems = Vec::new();
    for file in files() {
        for (number, line) in file.lines() {
            for path in paths.iter().filter(|path| line.contains(path.as_str())) {
                problems.push(format!("{}:{number}: {path}", file.path));
            }
        }
    }
    report(&problems);
}

#[test]
fn no_file_is_larger_than_a_mebibyte() {
    let large = files().into_iter().filter(|file| file.bytes.len() > FILE_BYTES);
    let problems: Vec<String> =
        large.map(|file| format!("{}: {} bytes", file.path, file.bytes.len())).collect();
    report(&problems);
}

#[test]
fn links_are_found_outside_code_only() {
    let text = "[a](b.md) ![c](d.png)\n```\n[e](f)\n```\n`[g](h)` [i](https://j) [k](#l)\n";
    assert_eq!(links(text), [(1, "b.md"), (1, "d.png"), (5, "#l")]);
    let text = "# The `up` command, and why\n```\n# not one\n```\n";
    assert_eq!(headings(text).collect::<Vec<_>>(), ["the-up-command-and-why"]);
}

/// The line and target of every link that stays within the tree.
fn links(text: &str) -> Vec<(usize, &str)> {
    let outside = |target: &&str| target.starts_with("http") || target.starts_with("mailto:");
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for plain in line.split('`').step_by(2) {
            let targets = plain.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            found.extend(targets.filter(|target| !outside(target)).map(|target| (number, target)));
        }
    }
    found
}

/// Each heading as a link would name it.
pub(crate) fn headings(text: &str) -> impl Iterator<Item = String> {
    let slug = |title: &str| {
        let kept = title.trim().to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    prose(text).filter(|(_, line)| line.starts_with('#')).map(move |(_, line)| {
        let title = line.trim_start_matches('#');
        slug(title)
    })
}

/// The numbered lines outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced).then_some((index + 1, line))
    })
}

//! The reference file: every key of the configuration, rendered from the declarations.

use crate::{
    effective::toml_text,
    key::{Effect, Entry, TableSpec},
    page::tables,
};

/// Columns of a line.
const WIDTH: usize = 100;

const HEAD: &str = "\
Every key of the configuration file, with its meaning, its values and its default. Rendered from the program's \
own declarations. It can be run as it is; what is not needed for that is behind `#`, with its default where it \
has one. Paths are relative to the file. `sluice check FILE` says everything that is wrong with a file, and \
`sluice check FILE --print` every value in force and where it came from.";

/// Tables and keys that the file has in force, with their values, so that it can be run.
const IN_FORCE: [(&str, &[(&str, &str)]); 3] = [
    ("router", &[]),
    (
        "model",
        &[
            ("name", "\"digits\""),
            ("engine", "\"onnx\""),
            ("path", "\"models/digits.onnx\""),
            ("slo_ms", "50"),
        ],
    ),
    ("worker", &[("cpu", "\"auto\"")]),
];

pub fn reference() -> String {
    let mut text = comment(HEAD);
    for (table, entries) in tables() {
        let given = IN_FORCE.iter().find(|(name, _)| *name == table.name).map(|(_, keys)| *keys);
        text.push('\n');
        text += &comment(table.about);
        text += &format!("{}{}\n", if given.is_some() { "" } else { "# " }, table.title);
        for entry in &entries {
            text += &key(table, entry, given.unwrap_or_default());
        }
    }
    text
}

fn key(table: &TableSpec, entry: &Entry, given: &[(&str, &str)]) -> String {
    let name = entry.key.name;
    let mut about = format!("{} Value: {}.", entry.key.about.trim(), entry.range);
    if entry.is_needed {
        about += &format!(" Required in {}.", table.title);
    }
    if let Some(variable) = entry.key.variable {
        about += &format!(" {variable} overrides it.");
    }
    if entry.key.effect == Effect::Restart && table.whole == Effect::Live {
        about += " A change takes a restart.";
    }
    let line = match given.iter().find(|(known, _)| *known == name) {
        Some((_, value)) => format!("{name} = {value}\n"),
        None if entry.value.is_null() => format!("# {name} =\n"),
        None => format!("# {name} = {}\n", toml_text(&entry.value)),
    };
    format!("\n{}{line}", comment(&about))
}

/// Words behind `#`, in lines of bounded length.
fn comment(words: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(format!("# {word}")),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_reference_file_has_every_key_and_can_be_run() {
        let text = reference();
        for (table, entries) in tables() {
            assert!(text.contains(table.title), "{}", table.title);
            for entry in entries {
                let name = entry.key.name;
                let is_it = |line: &str| {
                    let line = line.strip_prefix("# ").unwrap_or(line);
                    line.split_once(" =").is_some_and(|(key, _)| key == name)
                };
                assert!(text.lines().any(is_it), "{name} of {}", table.title);
            }
        }
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let read = crate::parse(Path::new("reference.toml"), &text, &configs);
        let (config, warnings) = read.unwrap_or_else(|problems| panic!("{problems}"));
        assert!(warnings.is_empty(), "{warnings:?}");
        config.check_up().unwrap();
    }

    #[test]
    fn a_default_behind_a_hash_is_the_one_in_force() {
        let uncommented: String = reference()
            .lines()
            .take_while(|line| *line != "[[model]]")
            .map(|line| {
                let bare = line.strip_prefix("# ").unwrap_or(line);
                let is_key = bare.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
                if is_key || bare.starts_with('[') { format!("{bare}\n") } else { String::new() }
            })
            .collect();
        assert!(uncommented.contains("drain_delay_s = 5\n"), "{uncommented}");
        let read = |text: &str| {
            let read = crate::parse(Path::new("r.toml"), text, Path::new("."));
            read.unwrap_or_else(|problems| panic!("{problems}")).0.router
        };
        assert_eq!(read(&uncommented), read("[router]\n"));
    }
}

//! Everything wrong with a configuration, each with its place.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    path::Path,
};

use serde::Serialize;

use crate::{
    secrets::KeyHash,
    source::{Source, told},
};

/// One thing wrong, or one thing to know, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub file: String,
    /// From 1; absent when no line is to blame.
    pub line: Option<usize>,
    /// In characters, from 1.
    pub column: Option<usize>,
    /// What is wrong, with the numbers that say so.
    pub message: String,
    #[serde(skip)]
    order: usize,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Everything wrong with one configuration, in file order. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    pub(crate) fn of_file(path: &Path, message: impl Into<String>) -> Self {
        let file = path.display().to_string();
        Self(vec![Problem { file, line: None, column: None, message: message.into(), order: 0 }])
    }

    /// The file is at fault right after `text`.
    pub(crate) fn of_text(path: &Path, text: &str, message: &str) -> Self {
        let source = Source::plain(path, text, path);
        let mut notes = Notes::new(&source);
        notes.problem(Place::Offset(text.len()), message);
        Self(notes.problems)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// What an operator should know about a configuration that is nevertheless sound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Warnings(Vec<Problem>);

impl Warnings {
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Offset(usize),
    Environment(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// A line and column, both from 1, of a byte of some text.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

pub(crate) struct Notes<'a> {
    source: Option<&'a Source<'a>>,
    file: String,
    text: &'a str,
    hashes: HashMap<KeyHash, Place>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    broken_lines: BTreeSet<usize>,
}

impl<'a> Notes<'a> {
    pub(crate) fn new(source: &'a Source<'a>) -> Self {
        let file = source.path.display().to_string();
        Self { source: Some(source), file, text: source.content(), ..Self::unread() }
    }

    /// Of no file at all, for what only documentation needs.
    pub(crate) fn unread() -> Self {
        Self {
            source: None,
            file: String::new(),
            text: "",
            hashes: HashMap::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            broken_lines: BTreeSet::new(),
        }
    }

    /// What relative paths in the file are relative to.
    pub(crate) fn base_dir(&self) -> &'a Path {
        self.source.map_or_else(|| Path::new(""), |source| source.base_dir)
    }

    /// What overrides the file's value, if anything does: its name, and what it says.
    pub(crate) fn variable(&self, name: &'static str) -> Option<(&'static str, &'a str)> {
        self.source.and_then(|source| source.environment.get(name))
    }

    /// The line where a hash was read before, if it was.
    pub(crate) fn first_use(&mut self, hash: KeyHash, place: Place) -> Option<usize> {
        self.hashes.insert(hash, place).map(|first| self.line_of(first))
    }

    /// The line of a place, or 0 where there is none.
    pub(crate) fn line_of(&self, place: Place) -> usize {
        match place {
            Place::Offset(offset) => self.line(offset),
            Place::Environment(_) => 0,
        }
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    pub(crate) fn line(&self, offset: usize) -> usize {
        position(self.text, offset).0
    }

    /// The text is not TOML here; one such is told per line, since the rest follow from it.
    pub(crate) fn broken(&mut self, offset: usize, message: &str) {
        let line = self.line(offset);
        if self.broken_lines.insert(line) {
            let problem = self.at(Place::Offset(offset), message.to_owned());
            self.problems.push(problem);
        }
    }

    pub(crate) fn problem(&mut self, place: Place, message: impl Into<String>) {
        let problem = self.at(place, message.into());
        if !problem.line.is_some_and(|line| self.broken_lines.contains(&line)) {
            self.problems.push(problem);
        }
    }

    /// Something is not there. Untold when the text was broken: it may only be out of sight.
    pub(crate) fn missing(&mut self, place: Place, message: impl Into<String>) {
        if self.broken_lines.is_empty() {
            self.problem(place, message);
        }
    }

    /// The file named at `place` is wrong, at a place of its own.
    pub(crate) fn elsewhere(&mut self, place: Place, problem: Problem) {
        let order = self.at(place, String::new()).order;
        self.problems.push(Problem { order, ..problem });
    }

    pub(crate) fn warn(&mut self, place: Place, message: impl Into<String>) {
        let warning = self.at(place, message.into());
        self.warnings.push(warning);
    }

    /// `value` if nothing is wrong. A missing value must have been told of.
    pub(crate) fn into_result<T>(mut self, value: Option<T>) -> Result<(T, Warnings), Problems> {
        self.problems.sort_by_key(|problem| problem.order);
        self.warnings.sort_by_key(|warning| warning.order);
        match value {
            Some(value) if self.problems.is_empty() => Ok((value, Warnings(self.warnings))),
            Some(_) | None => {
                assert!(!self.problems.is_empty(), "a value was dropped without a word");
                Err(Problems(self.problems))
            }
        }
    }

    fn at(&self, place: Place, message: String) -> Problem {
        match place {
            Place::Offset(offset) => {
                let (line, column) = position(self.text, offset);
                Problem {
                    file: self.file.clone(),
                    line: Some(line),
                    column: Some(column),
                    message,
                    order: offset,
                }
            }
            Place::Environment(name) => {
                Problem { file: told(name), line: None, column: None, message, order: usize::MAX }
            }
        }
    }
}

/// A problem of a file other than the configuration.
pub(crate) fn of_line(file: &Path, place: Option<(usize, usize)>, message: String) -> Problem {
    let (line, column) = place.unzip();
    Problem { file: file.display().to_string(), line, column, message, order: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_count_newlines() {
        let text = "a\nüß = 1\r\nb";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, text.find('=').unwrap()), (2, 4));
        assert_eq!(position(text, text.len()), (3, 2));
        assert_eq!(position(text, 3), (2, 1), "inside a character is at its start");
        assert_eq!(position(text, 999), (3, 2));
    }
}

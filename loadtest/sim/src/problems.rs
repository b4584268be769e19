//! Everything wrong with a scenario, each with its place.

use std::{fmt, ops::Range, path::Path};

use toml::Spanned;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: String,
    text: String,
    found: Vec<(usize, String)>,
}

impl Problems {
    pub(crate) fn new(path: &Path, text: &str) -> Self {
        let file = path.display().to_string();
        Self { file, text: text.to_owned(), found: Vec::new() }
    }

    pub(crate) fn add(&mut self, at: &Range<usize>, what: impl Into<String>) {
        self.found.push((at.start, what.into()));
    }

    pub(crate) fn within<T: PartialOrd + fmt::Display + Copy>(
        &mut self,
        key: &str,
        value: &Spanned<T>,
        range: std::ops::RangeInclusive<T>,
    ) -> T {
        let found = *value.get_ref();
        if !range.contains(&found) {
            let (least, most) = (range.start(), range.end());
            self.add(&value.span(), format!("{key} is {found}; give {least} to {most}"));
        }
        found
    }

    pub(crate) fn into_result<T>(mut self, value: Option<T>) -> Result<T, Self> {
        self.found.sort_by_key(|(offset, _)| *offset);
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            Some(_) | None => Err(self),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (offset, what)) in self.found.iter().enumerate() {
            let before = self.text.get(..*offset).unwrap_or(&self.text);
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            let gap = if index > 0 { "\n" } else { "" };
            write!(f, "{gap}{}:{line}:{column}: {what}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

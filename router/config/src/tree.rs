//! Reads typed values out of a tree of spans, noting what does not fit and
//! going on.

use std::collections::BTreeMap;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    problems::{At, Notes, Place},
    suggest,
    syntax::plainly,
};

pub(crate) trait Read: Sized {
    /// Reads `value`, or notes why it cannot be.
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self>;
}

/// What can be read of `text`; the rest is noted.
pub(crate) fn parse<'t>(text: &'t str, notes: &mut Notes<'_>) -> Spanned<DeTable<'t>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut errors: Vec<_> = errors
        .iter()
        .map(|error| (error.span().map_or(0, |span| span.start), error.message()))
        .collect();
    errors.sort_unstable();
    for (offset, message) in errors {
        notes.broken(offset, &plainly(message, text, offset));
    }
    root
}

/// One table of the file. Keys never asked for are unknown keys.
pub(crate) struct Section<'t> {
    /// None if the file has no such table.
    table: Option<&'t DeTable<'t>>,
    title: &'static str,
    place: Place,
    asked: Vec<&'static str>,
    missing: Vec<&'static str>,
}

impl<'t> Section<'t> {
    /// `title` names the section in messages, such as `[[model]]`.
    pub(crate) fn new(table: &'t DeTable<'t>, title: &'static str, place: Place) -> Self {
        Self { table: Some(table), title, place, asked: Vec::new(), missing: Vec::new() }
    }

    /// A table that the file does not have: every key has its default.
    pub(crate) fn absent(title: &'static str) -> Self {
        let (asked, missing) = (Vec::new(), Vec::new());
        Self { table: None, title, place: Place::Offset(0), asked, missing }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The value of `key`, if it is there. A key such as `replicas.min` is `min` in its own table.
    pub(crate) fn given(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        // What the parser made up to get past broken text has no extent.
        self.look(short(key)).filter(|value| !value.span().is_empty())
    }

    /// The absence of `key` is a problem, if the table is there.
    pub(crate) fn need(&mut self, key: &'static str) {
        if self.table.is_some_and(|table| !table.contains_key(short(key))) {
            self.missing.push(key);
        }
    }

    /// The value of `key`, whose absence is a problem.
    pub(crate) fn needed<T: Read>(
        &mut self,
        key: &'static str,
        notes: &mut Notes<'_>,
    ) -> Option<At<T>> {
        self.need(key);
        let value = self.given(key)?;
        let read = T::read(key, value, notes)?;
        Some(At { value: read, place: Place::Offset(value.span().start) })
    }

    /// Knows `keys`, whatever they hold: they are another's to read.
    pub(crate) fn leave(&mut self, keys: &[&'static str]) {
        for key in keys {
            if !self.asked.contains(key) {
                self.asked.push(key);
            }
        }
    }

    pub(crate) fn section(
        &mut self,
        key: &'static str,
        title: &'static str,
        notes: &mut Notes<'_>,
    ) -> Option<Section<'t>> {
        let value = self.look(key)?;
        as_section(key, title, value, notes)
    }

    pub(crate) fn sections(
        &mut self,
        key: &'static str,
        title: &'static str,
        notes: &mut Notes<'_>,
    ) -> Vec<Section<'t>> {
        let Some(value) = self.look(key) else { return Vec::new() };
        let place = Place::Offset(value.span().start);
        let Some(items) = value.get_ref().as_array() else {
            let found = describe(value.get_ref());
            notes.problem(place, format!("{key} is {found}; give a list of tables, as {title}"));
            return Vec::new();
        };
        items.iter().filter_map(|item| as_section(key, title, item, notes)).collect()
    }

    /// Notes every key that was not asked for and every one that is missing. A missing key that
    /// was only misspelt is not told twice.
    ///
    /// Gives the known keys that the table has, by intent if not by spelling.
    pub(crate) fn finish(self, notes: &mut Notes<'_>) -> Vec<String> {
        let mut meant = Vec::new();
        for (key, _) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if self.asked.contains(&name) {
                meant.push(name.to_owned());
                continue;
            }
            let advice = match suggest::meant(name, &self.asked) {
                Some(known) => {
                    meant.push(known.to_owned());
                    format!("did you mean `{known}`?")
                }
                None => format!("{} knows {}", self.title, self.asked.join(", ")),
            };
            let name = name.escape_debug();
            let message = format!("unknown key `{name}`; {advice}");
            notes.problem(Place::Offset(key.span().start), message);
        }
        for key in self.missing {
            if !meant.iter().any(|meant| meant == key) {
                notes.missing(self.place, format!("{} needs `{key}`", self.title));
            }
        }
        meant
    }

    fn look(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.asked.push(key);
        self.table?.get(key)
    }
}

/// The key within its own table.
fn short(key: &'static str) -> &'static str {
    key.rsplit_once('.').map_or(key, |(_, short)| short)
}

fn as_section<'t>(
    key: &str,
    title: &'static str,
    value: &'t Spanned<DeValue<'t>>,
    notes: &mut Notes<'_>,
) -> Option<Section<'t>> {
    let place = Place::Offset(value.span().start);
    match value.get_ref().as_table() {
        Some(table) => Some(Section::new(table, title, place)),
        None => {
            let found = describe(value.get_ref());
            notes.problem(place, format!("{key} is {found}; give a table, as {title}"));
            None
        }
    }
}

impl Read for String {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            wrong_kind(key, value, "a string", notes);
        }
        text.map(str::to_owned)
    }
}

impl Read for bool {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let read = value.get_ref().as_bool();
        if read.is_none() {
            wrong_kind(key, value, "true or false", notes);
        }
        read
    }
}

impl Read for u64 {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let Some(integer) = value.get_ref().as_integer() else {
            wrong_kind(key, value, "a whole number", notes);
            return None;
        };
        let read = Self::from_str_radix(integer.as_str(), integer.radix()).ok();
        if read.is_none() {
            wrong_kind(key, value, "a whole number from 0 to 2^64 - 1", notes);
        }
        read
    }
}

impl Read for i64 {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let integer = value.get_ref().as_integer();
        let read = integer.and_then(|i| Self::from_str_radix(i.as_str(), i.radix()).ok());
        if read.is_none() {
            wrong_kind(key, value, "a whole number", notes);
        }
        read
    }
}

impl Read for f64 {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let value_ref = value.get_ref();
        let float = value_ref.as_float().and_then(|float| float.as_str().parse::<Self>().ok());
        let integer = value_ref.as_integer();
        let whole = integer.and_then(|i| i128::from_str_radix(i.as_str(), i.radix()).ok());
        let read =
            float.or_else(|| whole.map(|whole| whole as Self)).filter(|number| number.is_finite());
        if read.is_none() {
            wrong_kind(key, value, "a number", notes);
        }
        read
    }
}

impl<T: Read> Read for Vec<At<T>> {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let Some(items) = value.get_ref().as_array() else {
            let is_text = value.get_ref().is_str();
            let example = if is_text { format!(", as {key} = [\"...\"]") } else { String::new() };
            let wanted = format!("a list{example}");
            wrong_kind(key, value, &wanted, notes);
            return None;
        };
        let read: Vec<_> = items
            .iter()
            .filter_map(|item| {
                let value = T::read(key, item, notes)?;
                Some(At { value, place: Place::Offset(item.span().start) })
            })
            .collect();
        (read.len() == items.len()).then_some(read)
    }
}

/// A list, or a single value for a list of one.
pub(crate) struct OneOrMore<T>(pub(crate) Vec<At<T>>);

impl<T: Read> Read for OneOrMore<T> {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        if value.get_ref().is_array() {
            return Vec::read(key, value, notes).map(Self);
        }
        let one = T::read(key, value, notes)?;
        Some(Self(vec![At { value: one, place: Place::Offset(value.span().start) }]))
    }
}

impl Read for BTreeMap<String, String> {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let Some(table) = value.get_ref().as_table() else {
            wrong_kind(key, value, "a table of strings", notes);
            return None;
        };
        let read: Self = table
            .iter()
            .filter_map(|(name, value)| {
                let name = name.get_ref().to_string();
                let text = String::read(&format!("{key}.{name}"), value, notes)?;
                Some((name, text))
            })
            .collect();
        (read.len() == table.len()).then_some(read)
    }
}

pub(crate) fn wrong_kind(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    wanted: &str,
    notes: &mut Notes<'_>,
) {
    let found = describe(value.get_ref());
    notes.problem(Place::Offset(value.span().start), format!("{key} is {found}; give {wanted}"));
}

/// A value short enough to repeat, or its kind. Strings are not repeated: one may be a secret.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(_) => "a string".to_owned(),
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Float(float) => float.to_string(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

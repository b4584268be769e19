//! The kinds of values that keys hold.

use std::{
    collections::BTreeMap, fmt::Display, net::SocketAddr, ops::RangeInclusive, path::PathBuf,
    time::Duration,
};

use serde_json::{Value, json};

use super::{Given, Kind};
use crate::{
    problems::{At, Notes},
    secrets::{HIDDEN, KeyHash},
    suggest::nearest,
    tree::{Read, wrong_kind},
};

/// A day, in seconds: longer waits are mistakes of unit.
pub(crate) const DAY_S: u64 = 86_400;

pub(crate) struct Text;

impl Kind<String> for Text {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<String> {
        Read::read(given.key, given.value, notes)
    }

    fn show(&self, value: &String, _given: Option<&Given<'_>>) -> Value {
        value.as_str().into()
    }

    fn range(&self) -> String {
        "text".to_owned()
    }
}

/// A name that is safe in a path, a label and a log line.
pub(crate) struct Word;

impl Kind<String> for Word {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<String> {
        let value = String::read(given.key, given.value, notes)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let begins = value.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
        if value.len() > 128 || !begins || !value.chars().all(plain) {
            let shown: String = value.chars().take(40).collect();
            let message = format!(
                "{} is {shown:?}; give 1 to 128 letters, digits, `.`, `_` or `-`, \
                 the first a letter or digit",
                given.key
            );
            notes.problem(given.place, message);
        }
        Some(value)
    }

    fn show(&self, value: &String, _given: Option<&Given<'_>>) -> Value {
        value.as_str().into()
    }

    fn range(&self) -> String {
        "name".to_owned()
    }
}

/// A path, relative to the directory of the file. Shown as it is written.
pub(crate) struct File;

impl Kind<PathBuf> for File {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<PathBuf> {
        Some(notes.base_dir().join(String::read(given.key, given.value, notes)?))
    }

    fn show(&self, _value: &PathBuf, given: Option<&Given<'_>>) -> Value {
        written(given)
    }

    fn range(&self) -> String {
        "path".to_owned()
    }
}

pub(crate) fn written(given: Option<&Given<'_>>) -> Value {
    given.and_then(|given| given.value.get_ref().as_str()).into()
}

pub(crate) struct Flag;

impl Kind<bool> for Flag {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<bool> {
        Read::read(given.key, given.value, notes)
    }

    fn show(&self, value: &bool, _given: Option<&Given<'_>>) -> Value {
        (*value).into()
    }

    fn range(&self) -> String {
        "true or false".to_owned()
    }
}

pub(crate) struct Whole(pub(crate) RangeInclusive<u64>);

impl Whole {
    fn within(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<u64> {
        let value = u64::read(given.key, given.value, notes)?;
        if self.0.contains(&value) {
            return Some(value);
        }
        notes.problem(given.place, format!("{} is {value}; give {}", given.key, self.words()));
        None
    }

    fn words(&self) -> String {
        format!("{} to {}", self.0.start(), self.0.end())
    }
}

impl<T: TryFrom<u64> + Into<Value> + Copy> Kind<T> for Whole {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<T> {
        self.within(given, notes).and_then(|value| T::try_from(value).ok())
    }

    fn show(&self, value: &T, _given: Option<&Given<'_>>) -> Value {
        (*value).into()
    }

    fn range(&self) -> String {
        self.words()
    }
}

pub(crate) struct Seconds(pub(crate) RangeInclusive<u64>);

impl Kind<Duration> for Seconds {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Duration> {
        Whole(self.0.clone()).within(given, notes).map(Duration::from_secs)
    }

    fn show(&self, value: &Duration, _given: Option<&Given<'_>>) -> Value {
        value.as_secs().into()
    }

    fn range(&self) -> String {
        format!("{} s", Whole(self.0.clone()).words())
    }
}

/// A whole number of milliseconds, a day at most.
pub(crate) struct Millis;

impl Kind<Duration> for Millis {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Duration> {
        Whole(1..=DAY_S * 1000).within(given, notes).map(Duration::from_millis)
    }

    fn show(&self, value: &Duration, _given: Option<&Given<'_>>) -> Value {
        ms(*value)
    }

    fn range(&self) -> String {
        format!("{} ms", Whole(1..=DAY_S * 1000).words())
    }
}

/// A number for which the first holds; the second says so.
#[derive(Clone, Copy)]
pub(crate) struct Number(pub(crate) fn(f64) -> bool, pub(crate) &'static str);

impl Number {
    pub(crate) fn problem(&self, key: &str, value: f64) -> Option<String> {
        let hint = if key.ends_with("_ms") && value > 0.0 && self.0(value * 1e3) {
            format!(" milliseconds; {value} s are {}", value * 1e3)
        } else if value > 1.0 && self.1.ends_with(" 1") && self.0(value / 100.0) {
            format!("; {value} % are {}", value / 100.0)
        } else {
            String::new()
        };
        (!self.0(value)).then(|| format!("{key} is {value}; give {}{hint}", self.1))
    }
}

impl Kind<f64> for Number {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<f64> {
        let value = f64::read(given.key, given.value, notes)?;
        let Some(problem) = self.problem(given.key, value) else { return Some(value) };
        notes.problem(given.place, problem);
        None
    }

    fn show(&self, value: &f64, _given: Option<&Given<'_>>) -> Value {
        number(*value)
    }

    fn range(&self) -> String {
        self.1.to_owned()
    }
}

/// A number of milliseconds, not always a whole one.
pub(crate) struct FractionalMillis(pub(crate) Number);

impl Kind<Duration> for FractionalMillis {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Duration> {
        self.0.read(given, notes).map(|ms| Duration::from_secs_f64(ms / 1000.0))
    }

    fn show(&self, value: &Duration, _given: Option<&Given<'_>>) -> Value {
        ms(*value)
    }

    fn range(&self) -> String {
        format!("{} ms", self.0.1)
    }
}

pub(crate) struct OneOf<T>(pub(crate) Vec<(&'static str, T)>);

impl<T: Copy> OneOf<T> {
    pub(crate) fn choose(&self, key: &str, word: &At<String>, notes: &mut Notes<'_>) -> Option<T> {
        if let Some((_, choice)) = self.0.iter().find(|(known, _)| *known == word.value) {
            return Some(*choice);
        }
        let words: Vec<_> = self.0.iter().map(|(word, _)| *word).collect();
        let advice = match nearest(&word.value, &words) {
            Some(word) => format!("did you mean {word:?}?"),
            None => format!("give one of {}", words.join(", ")),
        };
        notes.problem(word.place, format!("{key} is {:?}; {advice}", word.value));
        None
    }
}

impl<T: Copy + PartialEq> Kind<T> for OneOf<T> {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<T> {
        if !given.value.get_ref().is_str() {
            let words: Vec<_> = self.0.iter().map(|(word, _)| format!("{word:?}")).collect();
            wrong_kind(given.key, given.value, &format!("one of {}", words.join(", ")), notes);
            return None;
        }
        let value = String::read(given.key, given.value, notes)?;
        self.choose(given.key, &At { value, place: given.place }, notes)
    }

    fn show(&self, value: &T, _given: Option<&Given<'_>>) -> Value {
        self.0.iter().find(|(_, choice)| choice == value).map(|(word, _)| *word).into()
    }

    fn range(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|(word, _)| format!("`{word}`")).collect();
        words.join(", ")
    }
}

pub(crate) struct Words;

impl Kind<Vec<String>> for Words {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
        let words: Vec<At<String>> = Read::read(given.key, given.value, notes)?;
        Some(words.into_iter().map(|word| word.value).collect())
    }

    fn show(&self, value: &Vec<String>, _given: Option<&Given<'_>>) -> Value {
        value.clone().into()
    }

    fn range(&self) -> String {
        "list of text".to_owned()
    }
}

/// A table of strings that are not shown.
pub(crate) struct Hidden;

impl Kind<BTreeMap<String, String>> for Hidden {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<BTreeMap<String, String>> {
        Read::read(given.key, given.value, notes)
    }

    fn show(&self, value: &BTreeMap<String, String>, _given: Option<&Given<'_>>) -> Value {
        value.keys().map(|name| (name.clone(), Value::from(HIDDEN))).collect()
    }

    fn range(&self) -> String {
        "table of text".to_owned()
    }

    fn secret(&self, value: &BTreeMap<String, String>) -> Option<KeyHash> {
        Some(KeyHash::of(format!("{value:?}").as_bytes()))
    }
}

/// An IP address and port; the one given is an example.
pub(crate) struct Address(pub(crate) SocketAddr);

impl Kind<SocketAddr> for Address {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<SocketAddr> {
        if !given.value.get_ref().is_str() {
            let wanted = format!("an IP address and port, such as \"{}\"", self.0);
            wrong_kind(given.key, given.value, &wanted, notes);
            return None;
        }
        let text = String::read(given.key, given.value, notes)?;
        let read = text.parse().ok();
        if read.is_none() {
            let (key, example) = (given.key, self.0);
            let message =
                format!("{key} is {text:?}; give an IP address and port, such as {example}");
            notes.problem(given.place, message);
        }
        read
    }

    fn show(&self, value: &SocketAddr, _given: Option<&Given<'_>>) -> Value {
        value.to_string().into()
    }

    fn range(&self) -> String {
        "IP address and port".to_owned()
    }
}

/// A value of its own kind: how it is read, how it is shown and what it is in words.
pub(crate) struct Own<T>(
    pub(crate) fn(&Given<'_>, &mut Notes<'_>) -> Option<T>,
    pub(crate) fn(&T, Option<&Given<'_>>) -> Value,
    pub(crate) &'static str,
);

impl<T> Kind<T> for Own<T> {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<T> {
        self.0(given, notes)
    }

    fn show(&self, value: &T, given: Option<&Given<'_>>) -> Value {
        self.1(value, given)
    }

    fn range(&self) -> String {
        self.2.to_owned()
    }
}

/// A value whose parts keep their places for rules between keys, which also show it.
pub(crate) struct Raw(pub(crate) &'static str);

impl<T: Read> Kind<At<T>> for Raw {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<At<T>> {
        let value = T::read(given.key, given.value, notes)?;
        Some(At { value, place: given.place })
    }

    fn show(&self, _value: &At<T>, _given: Option<&Given<'_>>) -> Value {
        Value::Null
    }

    fn range(&self) -> String {
        self.0.to_owned()
    }
}

/// Shows what has a JSON form.
pub(crate) fn plain<T: Clone + Into<Value>>(value: &T, _given: Option<&Given<'_>>) -> Value {
    value.clone().into()
}

pub(crate) fn display<T: Display>(value: &T, _given: Option<&Given<'_>>) -> Value {
    value.to_string().into()
}

pub(crate) fn ms(time: Duration) -> Value {
    number(time.as_secs_f64() * 1000.0)
}

/// A whole number without its `.0`.
pub(crate) fn number(number: f64) -> Value {
    let rounded = (number * 1e6).round() / 1e6;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        json!(rounded as i64)
    } else {
        json!(rounded)
    }
}

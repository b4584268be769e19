//! What a key of the configuration is, declared once with [`table!`].
//!
//! From a declaration follow: reading the key (with every mistake noted at its place), its default,
//! the value shown by `--print` and its origin, whether a reload takes a change, and its row in
//! docs/reference/configuration.md.

pub(crate) mod kinds;

use serde::Serialize;
use serde_json::Value;
use toml::{Spanned, de::DeValue};

use crate::{
    problems::{Notes, Place},
    secrets::KeyHash,
    tree::Section,
};

/// What it takes to put a change in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    Live,
    /// A new process; a reload with such a change is rejected as a whole.
    Restart,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSpec {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    pub(crate) whole: Effect,
}

/// A key, apart from the values it may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpec {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) effect: Effect,
    pub(crate) variable: Option<&'static str>,
}

pub(crate) struct Declared<K> {
    pub(crate) key: KeySpec,
    pub(crate) kind: K,
}

/// A key's value as it stands in the file or the environment.
pub(crate) struct Given<'v> {
    pub(crate) key: &'static str,
    pub(crate) value: &'v Spanned<DeValue<'v>>,
    pub(crate) place: Place,
}

pub(crate) trait Kind<T> {
    /// Reads a value, or notes why it cannot be used.
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<T>;
    /// The value as `--print` shows it; as written where `given` is of more use.
    fn show(&self, value: &T, given: Option<&Given<'_>>) -> Value;
    fn range(&self) -> String;
    /// What tells two values apart that are not shown.
    fn secret(&self, _value: &T) -> Option<KeyHash> {
        None
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: KeySpec,
    /// Absent where the default holds.
    pub(crate) place: Option<Place>,
    /// The value in force; null where there is none.
    pub(crate) value: Value,
    pub(crate) secret: Option<KeyHash>,
    pub(crate) range: String,
    pub(crate) is_needed: bool,
    is_good: bool,
}

/// What was found of the keys of one table.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) is_present: bool,
    pub(crate) entries: Vec<Entry>,
}

impl Found {
    pub(crate) fn of(section: &Section<'_>) -> Self {
        let (place, is_present) = (section.place(), section.is_present());
        Self { place, is_present, entries: Vec::new() }
    }

    /// The key's value. Without one the key is a problem, and a stand-in lets reading go on.
    pub(crate) fn need<T: Default>(
        &mut self,
        section: &mut Section<'_>,
        declared: &Declared<impl Kind<T>>,
        notes: &mut Notes<'_>,
    ) -> T {
        section.need(declared.key.name);
        let read = self.maybe(section, declared, notes);
        if let Some(entry) = self.entries.last_mut() {
            entry.is_needed = true;
        }
        read.unwrap_or_default()
    }

    pub(crate) fn or<T>(
        &mut self,
        section: &mut Section<'_>,
        declared: &Declared<impl Kind<T>>,
        notes: &mut Notes<'_>,
        default: T,
    ) -> T {
        self.maybe(section, declared, notes).unwrap_or_else(|| {
            if let Some(entry) = self.entries.last_mut() {
                entry.value = declared.kind.show(&default, None);
                entry.secret = declared.kind.secret(&default);
            }
            default
        })
    }

    /// The key's value, if there is one that fits.
    pub(crate) fn maybe<T>(
        &mut self,
        section: &mut Section<'_>,
        declared: &Declared<impl Kind<T>>,
        notes: &mut Notes<'_>,
    ) -> Option<T> {
        let Declared { key, kind } = declared;
        let set = key.variable.and_then(|name| notes.variable(name));
        let set = set.map(|(name, text)| {
            (Spanned::new(0..text.len(), DeValue::String(text.into())), Place::Environment(name))
        });
        let in_file = section.given(key.name);
        let in_file = in_file.map(|value| (value, Place::Offset(value.span().start)));
        let given = set.as_ref().map(|(value, place)| (value, *place)).or(in_file);
        let given = given.map(|(value, place)| Given { key: key.name, value, place });
        let read = given.as_ref().and_then(|given| kind.read(given, notes));
        self.entries.push(Entry {
            key: *key,
            place: given.as_ref().map(|given| given.place),
            value: read.as_ref().map_or(Value::Null, |read| kind.show(read, given.as_ref())),
            secret: read.as_ref().and_then(|read| kind.secret(read)),
            range: kind.range(),
            is_needed: false,
            is_good: given.is_none() || read.is_some(),
        });
        read
    }

    pub(crate) fn place_of(&self, key: &str) -> Option<Place> {
        self.entry(key)?.place
    }

    /// Where to point at a mistake with `key`.
    pub(crate) fn blame(&self, key: &str) -> Place {
        self.place_of(key).unwrap_or(self.place)
    }

    /// Whether the value in force is the one asked for.
    pub(crate) fn is_good(&self, key: &str) -> bool {
        self.entry(key).is_some_and(|entry| entry.is_good)
    }

    pub(crate) fn text(&self, key: &str) -> Option<(&str, Place)> {
        let entry = self.entry(key)?;
        Some((entry.value.as_str()?, entry.place?))
    }

    /// Shows another value: a default that depends on other keys, or one put in order.
    pub(crate) fn show(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.key.name == key) {
            entry.value = value.into();
        }
    }

    /// Does not show keys that have no meaning beside the others.
    pub(crate) fn hide(&mut self, keys: &[&str]) {
        self.entries.retain(|entry| !keys.contains(&entry.key.name));
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key.name == key)
    }
}

/// Declares a table of the file, or a part of one that is read from the same section.
///
/// A row is `field: Type = "key" HOW, KIND, EFFECT;`, where HOW is `need`, `maybe` (the type is an
/// `Option`) or `or(DEFAULT)`, KIND is a [`Kind`] of the type and EFFECT is an [`Effect`]. A name
/// after it is the environment variable that overrides the key.
macro_rules! table {
    ($(#[$about:meta])* $vis:vis struct $name:ident { $(
        $(#[doc = $doc:literal])+
        $field:ident: $type:ty = $key:literal $how:ident $(($default:expr))?, $kind:expr,
        $effect:ident $(, $variable:literal)?;
    )+ }) => {
        $(#[$about])*
        $vis struct $name { $( $(#[doc = $doc])+ $vis $field: $type, )+ }

        impl $name {
            pub(crate) fn read(
                section: &mut $crate::tree::Section<'_>,
                notes: &mut $crate::problems::Notes<'_>,
            ) -> (Self, $crate::key::Found) {
                let mut found = $crate::key::Found::of(section);
                let read = Self { $( $field: {
                    let key = $crate::key::KeySpec {
                        name: $key,
                        about: concat!($($doc),+),
                        effect: $crate::key::Effect::$effect,
                        variable: [$($variable)?].first().copied(),
                    };
                    let declared = $crate::key::Declared { key, kind: $kind };
                    found.$how(section, &declared, notes $(, $default)?)
                }, )+ };
                (read, found)
            }
        }
    };
}
pub(crate) use table;

/// Reads a section that one declaration covers, and notes its unknown keys.
pub(crate) fn whole<T>(
    mut section: Section<'_>,
    notes: &mut Notes<'_>,
    read: fn(&mut Section<'_>, &mut Notes<'_>) -> (T, Found),
) -> (T, Found) {
    let read = read(&mut section, notes);
    section.finish(notes);
    read
}

//! Every value in force, and where it came from.

use std::{fmt, fmt::Write};

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    key::{Effect, Found, TableSpec, kinds::number},
    problems::{Notes, Place},
    secrets::KeyHash,
    source::told,
};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Effective {
    pub file: String,
    pub settings: Vec<Setting>,
}

/// One value in force. Serializes without secrets.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    pub table: &'static str,
    /// Which of several such tables: its `name`, or its index from 0.
    pub item: Option<String>,
    pub key: &'static str,
    /// The value, or null where there is none; a secret only as a sign that there is one.
    pub value: Value,
    pub origin: Origin,
    #[serde(skip)]
    pub(crate) effect: Effect,
    /// What it takes to add or remove the table.
    #[serde(skip)]
    pub(crate) whole: Effect,
    #[serde(skip)]
    secret: Option<KeyHash>,
}

impl Setting {
    /// The whole name, such as `model.digits.slo_ms`.
    pub fn path(&self) -> String {
        match &self.item {
            Some(item) => format!("{}.{item}.{}", self.table, self.key),
            None => format!("{}.{}", self.table, self.key),
        }
    }

    fn is_of_model(&self, model: &str, key: &str) -> bool {
        self.table == "model" && self.item.as_deref() == Some(model) && self.key == key
    }

    /// Whether both hold the same, hidden values included.
    pub(crate) fn same_value(&self, other: &Self) -> bool {
        self.value == other.value && self.secret == other.secret
    }

    /// The value as the file would have it.
    pub fn value_text(&self) -> String {
        toml_text(&self.value)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    File {
        file: String,
        line: usize,
    },
    Environment(&'static str),
    Operator {
        /// What the next reload brings back, and from where.
        instead_of: String,
    },
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Environment(name) => f.write_str(&told(name)),
            Self::Operator { instead_of } => write!(f, "an operator, instead of {instead_of}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Effective {
    /// TOML, each value with its origin. Not to be loaded again: secrets are not in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = None;
        for setting in &self.settings {
            let header = (setting.table, &setting.item);
            if shown != Some(header) {
                let gap = if shown.is_some() { "\n" } else { "" };
                let (open, close) = if setting.item.is_some() { ("[[", "]]") } else { ("[", "]") };
                writeln!(f, "{gap}{open}{}{close}", setting.table)?;
                shown = Some(header);
            }
            let mut line = format!("{} = {}", setting.key, setting.value_text());
            if setting.value.is_null() {
                line = format!("# {} is not set", setting.key);
            }
            writeln!(f, "{line:<48} # {}", setting.origin)?;
        }
        Ok(())
    }
}

impl Effective {
    /// Adds what was found of the parts of a table.
    pub(crate) fn list(
        &mut self,
        table: &TableSpec,
        item: Option<&str>,
        parts: &[Found],
        notes: &Notes<'_>,
    ) {
        for entry in parts.iter().flat_map(|part| &part.entries) {
            let origin = match entry.place {
                Some(Place::Offset(offset)) => {
                    Origin::File { file: self.file.clone(), line: notes.line(offset) }
                }
                Some(Place::Environment(name)) => Origin::Environment(name),
                None => Origin::Default,
            };
            self.settings.push(Setting {
                table: table.name,
                item: item.map(str::to_owned),
                key: entry.key.name,
                value: entry.value.clone(),
                origin,
                effect: entry.key.effect,
                whole: table.whole,
                secret: entry.secret,
            });
        }
    }

    pub(crate) fn of_model(&self, model: &str, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.is_of_model(model, key))
    }

    /// Sets the value of a key of a model, as an operator asked.
    pub(crate) fn overrule(&mut self, model: &str, key: &str, to: f64) {
        let to = number(to);
        let found = self.settings.iter_mut().find(|setting| setting.is_of_model(model, key));
        if let Some(setting) = found.filter(|setting| setting.value != to) {
            let instead_of = match &setting.origin {
                Origin::Operator { instead_of } => instead_of.clone(),
                origin @ (Origin::File { .. } | Origin::Environment(_) | Origin::Default) => {
                    format!("{} ({origin})", setting.value_text())
                }
            };
            (setting.value, setting.origin) = (to, Origin::Operator { instead_of });
        }
    }
}

/// `value` on one line of TOML.
pub(crate) fn toml_text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(toml_text).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let mut text = String::from("{");
            for (index, (key, value)) in fields.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                // Writing to a string cannot fail.
                let _ = write!(text, "{comma} {key} = {}", toml_text(value));
            }
            text + " }"
        }
    }
}

//! What differs between two configurations, and what each difference takes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{check::Config, effective::Setting, key::Effect, tables::tls::Tls};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The whole name, such as `model.digits.slo_ms`; for a table that came or went, the table's.
    pub path: String,
    /// The value before, as the file would have it; absent if there was none.
    pub old: Option<String>,
    pub new: Option<String>,
    pub effect: Effect,
}

pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
    let (before, after) = (tables(old), tables(new));
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let mut changes = Vec::new();
    for name in names {
        match (before.get(name), after.get(name)) {
            (Some(before), Some(after)) => compare(before, after, &mut changes),
            (None, Some(new)) => changes.push(whole(*name, whole_effect(new), true)),
            (Some(old), None) => changes.push(whole(*name, whole_effect(old), false)),
            (None, None) => {}
        }
    }
    changes.extend(measurements(old, new));
    changes.extend(contents(old, new));
    changes.extend(certificates(old, new));
    changes
}

/// A table's name, and which of several it is.
type Name<'c> = (&'static str, Option<&'c str>);
type Keys<'c> = BTreeMap<&'static str, &'c Setting>;

fn tables(config: &Config) -> BTreeMap<Name<'_>, Keys<'_>> {
    let mut tables: BTreeMap<Name<'_>, Keys<'_>> = BTreeMap::new();
    for setting in &config.effective.settings {
        let name = (setting.table, setting.item.as_deref());
        tables.entry(name).or_default().insert(setting.key, setting);
    }
    tables
}

fn compare(before: &Keys<'_>, after: &Keys<'_>, changes: &mut Vec<Change>) {
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        let same = match (old, new) {
            (Some(old), Some(new)) => old.same_value(new),
            (None, _) | (_, None) => false,
        };
        if let Some(setting) = new.or(old)
            && !same
        {
            changes.push(Change {
                path: setting.path(),
                old: old.map(|old| old.value_text()),
                new: new.map(|new| new.value_text()),
                effect: setting.effect,
            });
        }
    }
}

fn whole((table, item): Name<'_>, effect: Effect, is_added: bool) -> Change {
    let path = item.map_or_else(|| table.to_owned(), |item| format!("{table}.{item}"));
    let (old, new) = if is_added { (None, "added") } else { (Some("removed".to_owned()), "") };
    Change { path, old, new: is_added.then(|| new.to_owned()), effect }
}

/// What it takes to add or remove a table.
fn whole_effect(keys: &Keys<'_>) -> Effect {
    keys.values().next().map_or(Effect::Restart, |setting| setting.whole)
}

/// Profiles whose file kept its name and changed its content.
fn measurements<'c>(old: &'c Config, new: &'c Config) -> impl Iterator<Item = Change> + 'c {
    new.models.iter().filter_map(|model| {
        let before = old.models.iter().find(|before| before.name == model.name)?;
        let (then, now) = (before.profile.as_ref()?, model.profile.as_ref()?);
        let rows = |count: usize| Some(format!("{count} measurements"));
        (then != now).then(|| Change {
            path: format!("model.{}.profile_csv (content)", model.name),
            old: rows(then.rows().len()),
            new: rows(now.rows().len()),
            effect: Effect::Live,
        })
    })
}

/// Models whose file kept its name and changed its content.
fn contents<'c>(old: &'c Config, new: &'c Config) -> impl Iterator<Item = Change> + 'c {
    new.models.iter().filter_map(|model| {
        let before = old.models.iter().find(|before| before.name == model.name)?;
        let (then, now) = (before.content.as_ref()?, model.content.as_ref()?);
        let is_new = then != now && before.engine.file() == model.engine.file();
        is_new.then(|| Change {
            path: format!("model.{}.path (content)", model.name),
            old: Some(then.clone()),
            new: Some(now.clone()),
            effect: Effect::Live,
        })
    })
}

fn certificates(old: &Config, new: &Config) -> Option<Change> {
    let (then, now) = (old.tls.as_ref()?, new.tls.as_ref()?);
    let shown = |config: &Tls| Some(config.identity.cert.display().to_string());
    (!then.is_same(now)).then(|| Change {
        path: "tls (content)".to_owned(),
        old: shown(then),
        new: shown(now),
        effect: Effect::Live,
    })
}

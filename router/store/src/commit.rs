//! Changes, made durable one at a time.

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{CommitError, Records, Store, line};

/// A log shorter than this is left alone.
const LEAST_REWRITTEN: u64 = 1 << 20;
/// A log is rewritten when it is this many times as long as it was when it was short.
const GROWN: u64 = 4;

/// Some records set and some removed, together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    put: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    delete: Vec<String>,
}

impl Change {
    pub fn put(mut self, key: impl Into<String>, value: Value) -> Self {
        self.put.insert(key.into(), value);
        self
    }

    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.delete.push(key.into());
        self
    }

    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.delete.is_empty()
    }

    pub fn into_parts(self) -> (Records, Vec<String>) {
        (self.put, self.delete)
    }

    pub(crate) fn all(records: &Records) -> Self {
        Self { put: records.clone(), delete: Vec::new() }
    }

    pub(crate) fn apply(self, records: &mut Records) {
        for key in &self.delete {
            records.remove(key);
        }
        records.extend(self.put);
    }
}

pub(crate) fn commit(store: &mut Store, change: Change) -> Result<(), CommitError> {
    if store.broken {
        return Err(CommitError::Broken { path: store.files.path.clone() });
    }
    if change.is_empty() {
        return Ok(());
    }
    let text = line::commit(&change);
    if let Err(source) = store.medium.append(&text) {
        take_back(store);
        return Err(CommitError::Io { path: store.files.path.clone(), source });
    }
    if let Err(source) = store.medium.sync() {
        // The system may have dropped what it could not write, and would not say so again.
        store.broken = true;
        return Err(CommitError::Io { path: store.files.path.clone(), source });
    }
    store.length += text.len() as u64;
    change.apply(&mut store.records);
    if store.length > LEAST_REWRITTEN.max(store.short.saturating_mul(GROWN)) {
        shorten(store);
    }
    Ok(())
}

/// Cuts off what was written of a commit that failed.
fn take_back(store: &mut Store) {
    let cut = store.medium.truncate(store.length).and_then(|()| store.medium.sync());
    store.broken = cut.is_err();
}

/// Rewrites the log with what it says now. If that fails the long one goes on to serve.
fn shorten(store: &mut Store) {
    let rewritten = store.files.rewrite(&store.records, store.version);
    let reopened = rewritten.and_then(|length| Ok((length, store.files.append()?)));
    match reopened {
        Ok((length, file)) => {
            store.medium = (store.through)(file);
            store.length = length;
            store.short = length;
        }
        Err(error) if error.kind() == io::ErrorKind::StorageFull => store.short = store.length,
        // Whether the old or the new file has the name is not known.
        Err(_) => store.broken = true,
    }
}

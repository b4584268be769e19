//! What is asked of etcd, as JSON. 64-bit numbers are text there.

use std::time::Duration;

use serde_json::{Value, json};

use crate::base64;

/// A time for which keys are kept, unless it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: u64,
    /// For how long it was granted; etcd may grant more than was asked for.
    pub ttl: Duration,
}

/// A key and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub key: String,
    pub value: String,
    /// The revision at which it came to be.
    pub created: u64,
    /// The revision at which it was last set.
    pub modified: u64,
    /// The lease it is bound to; 0 for none.
    pub lease: u64,
}

/// All keys under a prefix at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub revision: u64,
    pub pairs: Vec<Pair>,
}

/// What a transaction came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether its condition held, and its changes were made.
    pub held: bool,
    pub revision: u64,
    /// The key of the condition, if that did not hold and there is such a key.
    pub found: Option<Pair>,
}

/// Changes that are made together, if one key is as expected, and otherwise not at all.
#[derive(Clone, Debug)]
pub struct Txn {
    guard: String,
    created: u64,
    changes: Vec<Value>,
}

impl Txn {
    /// On condition that `key` came to be at revision `created`; 0 if there must be no such key.
    pub fn guarded(key: &str, created: u64) -> Self {
        Self { guard: key.to_owned(), created, changes: Vec::new() }
    }

    pub fn put(mut self, key: &str, value: &str) -> Self {
        let (key, value) = (text(key), text(value));
        self.changes.push(json!({"request_put": {"key": key, "value": value}}));
        self
    }

    /// Sets `key` too, for as long as the lease lasts.
    pub fn put_leased(mut self, key: &str, value: &str, lease: u64) -> Self {
        let (key, value, lease) = (text(key), text(value), lease.to_string());
        self.changes.push(json!({"request_put": {"key": key, "value": value, "lease": lease}}));
        self
    }

    pub fn delete(mut self, key: &str) -> Self {
        self.changes.push(json!({"request_delete_range": {"key": text(key)}}));
        self
    }

    pub(crate) fn body(&self) -> Value {
        let key = text(&self.guard);
        json!({
            "compare": [{
                "key": key,
                "target": "CREATE",
                "result": "EQUAL",
                "create_revision": self.created.to_string(),
            }],
            "success": self.changes,
            "failure": [{"request_range": {"key": key}}],
        })
    }
}

pub(crate) fn range(from: &[u8], prefix: &str, revision: u64, limit: u64) -> Value {
    json!({
        "key": base64::encode(from),
        "range_end": base64::encode(&beyond(prefix)),
        "revision": revision.to_string(),
        "limit": limit.to_string(),
    })
}

pub(crate) fn watch(prefix: &str, from: u64) -> Value {
    json!({"create_request": {
        "key": text(prefix),
        "range_end": base64::encode(&beyond(prefix)),
        "start_revision": from.to_string(),
    }})
}

fn text(plain: &str) -> String {
    base64::encode(plain.as_bytes())
}

/// The first key after all that begin with `prefix`, which is not empty.
fn beyond(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // No byte of UTF-8 is 255.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_after_all_its_keys() {
        let end = beyond("/sluice/");
        assert!("/sluice/\u{10ffff}".as_bytes() < end.as_slice());
        assert!(end.as_slice() <= b"/sluice0".as_slice());
    }
}

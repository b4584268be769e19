//! What etcd answers, from its JSON: 64-bit numbers may be text, and zeros and empty values are left
//! out. Any bytes at all are understood or refused.

use std::time::Duration;

use serde::{Deserialize, de::Error as _};
use serde_json::{Error, Value, from_slice};

use crate::{
    base64,
    message::{Lease, Outcome, Pair},
};

pub(crate) const MAX_ANSWER: usize = 64 << 20;
/// Most characters of etcd's own words that are repeated.
const MAX_QUOTE: usize = 300;
/// A lease is believed to last no longer than this, whatever is said.
const LONGEST_LEASE_S: u64 = 86_400;

/// Some of the keys under a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub revision: u64,
    /// The keys, in order; those that no router can have written are left out.
    pub pairs: Vec<Pair>,
    /// Where to go on, if there are more.
    pub rest: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Put(Pair),
    Deleted { key: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Those that were asked for are no longer kept.
    Compacted {
        /// The first revision that is.
        kept: u64,
    },
    Ended {
        why: String,
    },
}

/// The changes that a watch tells of, a line for each message.
#[derive(Clone, Debug)]
pub struct Changes {
    /// What came of the next line so far.
    pending: Vec<u8>,
    /// How much of it has no end of a line in it.
    searched: usize,
    next: u64,
}

impl Changes {
    /// Those from revision `from` on.
    pub fn from(from: u64) -> Self {
        Self { pending: Vec::new(), searched: 0, next: from }
    }

    /// Where another watch goes on without a gap.
    pub fn next_revision(&self) -> u64 {
        self.next
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// What came and is no whole line.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// The changes of the next message, which may be none; nothing if none has come whole.
    pub fn take(&mut self) -> Result<Option<Vec<Event>>, Stop> {
        while let Some(end) = self.pending[self.searched..].iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=self.searched + end).collect();
            self.searched = 0;
            if let Some(events) = self.understand(&line)? {
                return Ok(Some(events));
            }
        }
        self.searched = self.pending.len();
        Ok(None)
    }

    /// The changes of one message; nothing if it tells only that the watch began.
    fn understand(&mut self, line: &[u8]) -> Result<Option<Vec<Event>>, Stop> {
        let ended = |why: String| Stop::Ended { why };
        let read: Streamed<Watched> =
            from_slice(line).map_err(|error| ended(format!("not understood: {error}")))?;
        let Some(watched) = read.result else {
            return Err(ended(read.error.unwrap_or_default().to_string()));
        };
        if watched.compact_revision > 0 {
            return Err(Stop::Compacted { kept: watched.compact_revision });
        }
        if watched.canceled {
            return Err(ended("it was cancelled".to_owned()));
        }
        if watched.created {
            return Ok(None);
        }
        let last = watched.events.iter().map(|event| event.kv.mod_revision).max();
        self.next = self.next.max(last.unwrap_or(watched.header.revision).saturating_add(1));
        let events = watched.events.iter().filter_map(|event| {
            let pair = event.kv.pair()?;
            Some(match event.kind.as_str() {
                "DELETE" => Event::Deleted { key: pair.key },
                _ => Event::Put(pair),
            })
        });
        Ok(Some(events.collect()))
    }
}

/// The answer to a listing.
pub fn page(bytes: &[u8]) -> Result<Page, Error> {
    let ranged: Ranged = from_slice(bytes)?;
    let rest = if ranged.more {
        // Where it goes on is after the last key, even if that is none of ours.
        let last = ranged.kvs.last().and_then(|kv| base64::decode(&kv.key));
        let mut last = last.ok_or_else(|| Error::custom("there is more after no key"))?;
        last.push(0);
        Some(last)
    } else {
        None
    };
    let pairs = ranged.kvs.iter().filter_map(KeyValue::pair).collect();
    Ok(Page { revision: ranged.header.revision, pairs, rest })
}

/// The answer to the wish for a lease.
pub fn lease(bytes: &[u8]) -> Result<Lease, Error> {
    let granted: Granted = from_slice(bytes)?;
    Ok(Lease { id: granted.id, ttl: granted.ttl() })
}

/// The answer to a renewal: how long the lease lasts, or nothing if it is gone.
pub fn renewed(bytes: &[u8]) -> Result<Option<Duration>, Error> {
    let renewed: Streamed<Granted> = from_slice(bytes)?;
    Ok(renewed.result.map(|granted| granted.ttl()).filter(|ttl| !ttl.is_zero()))
}

/// The answer to a transaction.
pub fn outcome(bytes: &[u8]) -> Result<Outcome, Error> {
    let done: Transacted = from_slice(bytes)?;
    let ranges = done.responses.iter().filter_map(|one| one.response_range.as_ref());
    let found = ranges.flat_map(|range| &range.kvs).find_map(KeyValue::pair);
    Ok(Outcome { held: done.succeeded, revision: done.header.revision, found })
}

/// The answer to what has none but that it was done.
pub fn done(bytes: &[u8]) -> Result<(), Error> {
    from_slice::<Value>(bytes).map(|_| ())
}

/// etcd's own words: its `error` if it sent one, else the start of the body.
pub(crate) fn words(body: &[u8]) -> String {
    let read = from_slice::<Value>(body).ok();
    let error = read.as_ref().and_then(|value| value.get("error")?.as_str());
    let words = error.map_or_else(|| String::from_utf8_lossy(body).into(), str::to_owned);
    words.chars().take(MAX_QUOTE).collect()
}

#[derive(Debug, Default, Deserialize)]
struct Header {
    #[serde(default, deserialize_with = "number")]
    revision: u64,
}

#[derive(Debug, Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default, deserialize_with = "number")]
    create_revision: u64,
    #[serde(default, deserialize_with = "number")]
    mod_revision: u64,
    #[serde(default, deserialize_with = "number")]
    lease: u64,
}

impl KeyValue {
    /// Nothing if the key or the value is not UTF-8, which no router writes.
    fn pair(&self) -> Option<Pair> {
        let plain = |text: &str| String::from_utf8(base64::decode(text)?).ok();
        let (key, value) = (plain(&self.key)?, plain(&self.value)?);
        let (created, modified) = (self.create_revision, self.mod_revision);
        Some(Pair { key, value, created, modified, lease: self.lease })
    }
}

#[derive(Debug, Deserialize)]
struct Ranged {
    #[serde(default)]
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
    #[serde(default)]
    more: bool,
}

#[derive(Debug, Deserialize)]
struct Transacted {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Debug, Deserialize)]
struct Response {
    response_range: Option<Ranged>,
}

#[derive(Debug, Deserialize)]
struct Granted {
    #[serde(rename = "ID", deserialize_with = "number")]
    id: u64,
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    ttl_s: u64,
}

impl Granted {
    fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_s.min(LONGEST_LEASE_S))
    }
}

#[derive(Debug, Deserialize)]
struct Streamed<T> {
    result: Option<T>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Watched {
    #[serde(default)]
    header: Header,
    #[serde(default)]
    created: bool,
    #[serde(default)]
    canceled: bool,
    #[serde(default, deserialize_with = "number")]
    compact_revision: u64,
    #[serde(default)]
    events: Vec<WatchedEvent>,
}

#[derive(Debug, Deserialize)]
struct WatchedEvent {
    #[serde(rename = "type", default)]
    kind: String,
    kv: KeyValue,
}

/// A number, which may be text.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(from)?;
    let read = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    read.ok_or_else(|| serde::de::Error::custom(format!("{value} is no number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_held_not_tells_what_it_found() {
        let answer = br#"{"header":{"revision":"12"},"responses":[{"response_range":{"header":{},
            "kvs":[{"key":"L2w=","create_revision":"2","mod_revision":"5","version":"1",
            "value":"bWU=","lease":"2324035411533699847"}],"count":"1"}}]}"#;
        let (key, value) = ("/l".to_owned(), "me".to_owned());
        let lease = 2_324_035_411_533_699_847;
        let found = Some(Pair { key, value, created: 2, modified: 5, lease });
        assert_eq!(outcome(answer).unwrap(), Outcome { held: false, revision: 12, found });
    }

    #[test]
    fn a_lease_that_is_gone_has_no_time_left() {
        let gone = br#"{"result":{"header":{},"ID":"12345"}}"#;
        assert_eq!(renewed(gone).unwrap(), None);
    }

    #[test]
    fn listing_continues_after_a_foreign_last_key() {
        let answer = br#"{"kvs":[{"key":"YQ=="},{"key":"/w=="}],"more":true}"#;
        let page = page(answer).unwrap();
        assert_eq!(page.pairs.len(), 1);
        assert_eq!(page.rest, Some(vec![255, 0]));
    }

    #[test]
    fn a_listing_with_more_after_nothing_is_refused() {
        assert!(page(br#"{"kvs":[],"more":true}"#).is_err());
    }

    #[test]
    fn the_last_revision_there_can_be_is_no_reason_to_stop() {
        let mut changes = Changes::from(7);
        changes.feed(br#"{"result":{"header":{"revision":"18446744073709551615"}}}"#);
        assert_eq!(changes.take(), Ok(None), "the line has not ended");
        changes.feed(b"\n");
        assert_eq!(changes.take(), Ok(Some(Vec::new())));
        assert_eq!(changes.next_revision(), u64::MAX);
    }

    #[test]
    fn a_lease_for_ever_is_believed_for_a_day() {
        let granted = lease(br#"{"ID":"1","TTL":"18446744073709551615"}"#).unwrap();
        assert_eq!(granted.ttl, Duration::from_secs(86_400));
    }
}

//! What changed and why: the newest changes of the fleet, in the order in which they were seen.
//!
//! Most are observed in the state; a reload is noted where it is done.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serve::clock::wall_s;

/// The most that are remembered.
const MOST: usize = 1000;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Rises by one from 1 at the start of the router.
    pub seq: u64,
    /// When it was seen, in milliseconds since 1970.
    pub at_ms: u64,
    #[serde(flatten)]
    pub change: Change,
}

/// What changed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Which kind of change, from a fixed set: `replica_ready`, `worker_joined`, `config_reloaded`.
    pub kind: String,
    /// What it is about: the name of a model, a worker, a job, a key.
    pub subject: String,
    /// What happened, as a sentence.
    pub what: String,
    pub why: Option<String>,
}

/// The newest events, as the admin API gives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// When the router started, in milliseconds since 1970; sequence numbers count from there.
    pub started_ms: u64,
    /// Oldest first.
    pub events: Vec<Event>,
}

/// What remembers them.
#[derive(Debug)]
pub struct Log {
    started_ms: u64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    events: VecDeque<Event>,
}

impl Default for Log {
    fn default() -> Self {
        Self { started_ms: now_ms(), kept: Mutex::default() }
    }
}

impl Change {
    pub(crate) fn new(kind: &str, subject: impl Into<String>, what: impl Into<String>) -> Self {
        let (subject, what) = (subject.into(), what.into());
        Self { kind: kind.to_owned(), subject, what, why: None }
    }

    pub(crate) fn because(self, why: impl Into<Option<String>>) -> Self {
        Self { why: why.into().filter(|why| !why.is_empty()), ..self }
    }
}

impl Log {
    pub(crate) fn note(&self, change: Change) {
        let at_ms = now_ms();
        let mut kept = self.kept.lock();
        kept.last += 1;
        let seq = kept.last;
        if kept.events.len() == MOST {
            kept.events.pop_front();
        }
        kept.events.push_back(Event { seq, at_ms, change });
    }

    /// Those after the `after`th, as far as they are remembered.
    pub fn after(&self, after: u64) -> Events {
        let kept = self.kept.lock();
        let events = kept.events.iter().filter(|event| event.seq > after).cloned().collect();
        Events { started_ms: self.started_ms, events }
    }
}

fn now_ms() -> u64 {
    (wall_s() * 1e3) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_events_are_kept_and_read_from_where_one_was() {
        let log = Log::default();
        for number in 1..=MOST + 5 {
            log.note(Change::new("job", number.to_string(), "it ran"));
        }
        let all = log.after(0).events;
        assert_eq!((all.len(), all[0].seq, all[MOST - 1].seq), (MOST, 6, MOST as u64 + 5));
        let rest = log.after(MOST as u64 + 3).events;
        assert_eq!(rest.iter().map(|event| event.seq).collect::<Vec<_>>(), [1004, 1005]);
        assert_eq!(log.after(2000).events, []);
    }
}

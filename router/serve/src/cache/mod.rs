//! Answers remembered, so that equal requests are computed once.
//!
//! Each model that asks for it has a cache of its own. A model is served in one version and its
//! names and datatypes are its signature's, so shapes and bytes are the whole key, and they are
//! compared in full: a hash only says where to look.
//!
//! A request equal to one under way joins it. What they share lives while any of them waits, so the
//! first may hang up without loss to the others, and each is answered by its own deadline. Failures
//! are never remembered. One that is about the request or the model goes to all who joined; a
//! refusal weighed the deadline, class and tenant of the first alone, so the others then ask for
//! themselves.
//!
//! The hash is fast rather than proof against those who search for collisions. It can afford to be:
//! a place holds one key, another key that falls on it is computed and not kept, and nothing is ever
//! searched. All that an attacker could gain is a miss.

mod entry;
mod flight;
mod key;
mod memory;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use self::{
    entry::Entry,
    flight::{Flight, Underway},
    key::Key,
    memory::Memory,
};
use crate::{
    error::InferError,
    request::{Answer, Request},
};

/// How a request ends.
type Outcome = Result<Answer, InferError>;
/// Spreads keys' hashes over a table.
type PlaceHash = foldhash::fast::RandomState;

/// What computes the answers that are not remembered.
pub trait Source: Clone + Send + 'static {
    /// Computes one. Dropping the future gives it up.
    fn compute(self, request: Request) -> impl Future<Output = Outcome> + Send + 'static;

    /// A request was looked up, which took `took`. Told once for each.
    fn looked_up(&self, lookup: Lookup, took: Duration);
}

/// What looking a request up came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    Hit,
    /// An equal one was under way.
    Joined,
    Miss,
}

/// One model's remembered answers, and those under way.
#[derive(Debug)]
pub struct Cache {
    model: String,
    room_bytes: AtomicUsize,
    seed: RandomState,
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    pub answers: usize,
    /// What they take, their requests and the bookkeeping included.
    pub bytes: usize,
    pub room_bytes: usize,
}

#[derive(Debug)]
struct Known {
    memory: Memory,
    flights: HashMap<u64, Flight, PlaceHash>,
}

enum Found {
    Remembered(Arc<Entry>),
    Underway(Underway),
    Ours(Underway),
    /// Another key is in its place.
    Crowded,
}

impl Cache {
    /// An empty cache for `model`; one without room is off.
    pub fn new(model: &str, room_bytes: usize) -> Arc<Self> {
        let known = Known { memory: Memory::new(room_bytes), flights: HashMap::default() };
        Arc::new(Self {
            model: model.to_owned(),
            room_bytes: AtomicUsize::new(room_bytes),
            seed: RandomState::default(),
            known: Mutex::new(known),
        })
    }

    pub fn is_on(&self) -> bool {
        self.room_bytes.load(Ordering::Relaxed) > 0
    }

    /// Gives it another size, forgetting what no longer fits.
    pub fn resize(&self, room_bytes: usize) {
        self.room_bytes.store(room_bytes, Ordering::Relaxed);
        self.known.lock().memory.resize(room_bytes);
    }

    /// Forgets everything. What is under way is still answered, and then not remembered.
    pub fn clear(&self) {
        let mut known = self.known.lock();
        known.memory.clear();
        known.flights.clear();
    }

    pub fn view(&self) -> View {
        self.known.lock().memory.view()
    }

    /// The answer to `request`: remembered, shared with an equal request, or computed by `source`.
    pub async fn answer<S: Source>(
        self: &Arc<Self>,
        request: Request,
        patience: Patience,
        source: &S,
    ) -> Outcome {
        let started = Instant::now();
        let deadline = request.arrived + patience.of(request.timeout);
        let key = Arc::new(Key::new(&request.inputs, &self.seed));
        let mut found = self.find(&key, &request, source);
        source.looked_up(found.lookup(), started.elapsed());
        loop {
            let flight = match found {
                Found::Remembered(entry) => return Ok(entry.answer()),
                Found::Ours(flight) => return flight.await,
                Found::Crowded => return source.clone().compute(request).await,
                Found::Underway(flight) => flight,
            };
            match timeout_at(deadline, flight).await {
                Ok(Err(
                    InferError::Overloaded { .. }
                    | InferError::TooLate { .. }
                    | InferError::DeadlineTooShort { .. },
                )) => {}
                Ok(result) => return result,
                Err(_) => {
                    return Err(patience.ended(&self.model, &request));
                }
            }
            found = self.find(&key, &request, source);
        }
    }

    fn find<S: Source>(self: &Arc<Self>, key: &Arc<Key>, request: &Request, source: &S) -> Found {
        loop {
            // Keys are compared after the lock is let go of: they may be long.
            let mut known = self.known.lock();
            if let Some(entry) = known.memory.get(key.hash()) {
                drop(known);
                return if *entry.key() == **key {
                    Found::Remembered(entry)
                } else {
                    Found::Crowded
                };
            }
            let Some(flight) = known.flights.get(&key.hash()).cloned() else {
                let (flight, ours) = Flight::new(self, key, source.clone(), request.clone());
                known.flights.insert(key.hash(), flight);
                return Found::Ours(ours);
            };
            drop(known);
            if **flight.key() != **key {
                return Found::Crowded;
            }
            if let Some(underway) = flight.join() {
                return Found::Underway(underway);
            }
            // All who waited for it have just left.
            self.known.lock().land(flight.key());
        }
    }
}

/// How long callers of a model wait.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub objective: Duration,
    /// How long an answer is wanted; at least the objective.
    pub timeout: Duration,
}

impl Patience {
    fn of(self, own: Option<Duration>) -> Duration {
        own.map_or(self.timeout, |own| own.min(self.timeout))
    }

    /// What one is told who waited for another's answer until its own deadline. Where that is shorter
    /// than the objective, the answer may still be in time for it, and is not ours to hurry.
    fn ended(self, model: &str, request: &Request) -> InferError {
        let (model, waited) = (model.to_owned(), request.arrived.elapsed());
        let own = self.of(request.timeout);
        if own >= self.objective || waited > self.objective {
            return InferError::TooLate { model, waited };
        }
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let (timeout_ms, slo_ms) = (millis(own), millis(self.objective));
        InferError::DeadlineTooShort { model, predicted_ms: millis(waited), timeout_ms, slo_ms }
    }
}

impl Known {
    /// Forgets the flight that took off with this very `key`; false if it was forgotten before.
    fn land(&mut self, key: &Arc<Key>) -> bool {
        let flight = self.flights.get(&key.hash());
        let is_there = flight.is_some_and(|flight| Arc::ptr_eq(flight.key(), key));
        if is_there {
            self.flights.remove(&key.hash());
        }
        is_there
    }
}

impl Found {
    fn lookup(&self) -> Lookup {
        match self {
            Self::Remembered(_) => Lookup::Hit,
            Self::Underway(_) => Lookup::Joined,
            Self::Ours(_) | Self::Crowded => Lookup::Miss,
        }
    }
}

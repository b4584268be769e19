//! Orders: what an operator wants of the fleet until he says otherwise.
//!
//! A worker is drained, a replica is pinned. An order is made durable before anybody hears of it, so
//! that a router that starts again goes on where it was.

mod asked;
mod error;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use store::{Change, CommitError, OpenError, Schema, Store};

pub use self::{
    asked::{Order, PinAsked},
    error::OrderError,
};
use crate::jobs::Seat;

/// The file in the state directory.
const FILE: &str = "orders.log";
const SCHEMA: Schema = Schema { migrations: &[] };
/// The most pins there may be.
pub(crate) const MOST_PINS: usize = 10_000;

const DRAIN: &str = "drain/";
const PIN: &str = "pin/";

/// Every order that stands.
///
/// Whoever changes something holds `store` from reading to writing; who only looks never waits.
#[derive(Debug)]
pub struct Orders {
    /// Absent without a state directory: orders are then gone with the process.
    store: Mutex<Option<Store>>,
    standing: ArcSwap<Standing>,
}

/// Orders at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Workers that shall have nothing, by name.
    pub drains: BTreeMap<String, Drain>,
    /// Replicas that shall be where they are wanted, the oldest order first.
    pub pins: Vec<Pin>,
}

/// A worker that shall have nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Who wants it.
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

/// A replica that shall be where it is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Its model.
    pub model: String,
    /// Where it shall be.
    pub at: Seat,
    /// Where its model shall leave for it, until it has.
    pub from: Option<Seat>,
    /// Who wants it.
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

impl Orders {
    /// Those kept in `state_dir`; without one, none, and none will be kept.
    pub fn open(state_dir: Option<&Path>) -> Result<Arc<Self>, OpenError> {
        let mut standing = Standing::default();
        let mut store = None;
        if let Some(state_dir) = state_dir {
            let opened = Store::open(&state_dir.join(FILE), &SCHEMA)?;
            if let Some(torn) = &opened.torn {
                tracing::warn!(kept = %torn.display(), "an unfinished write was set aside");
            }
            standing = Standing::read(opened.store.records());
            store = Some(opened.store);
        }
        let standing = ArcSwap::from_pointee(standing);
        Ok(Arc::new(Self { store: Mutex::new(store), standing }))
    }

    /// What stands now.
    pub fn standing(&self) -> Arc<Standing> {
        self.standing.load_full()
    }

    /// Drains a worker; one that is drained already stays as it is. Writes to the disk.
    pub fn drain(&self, worker: &str, drain: Drain) -> Result<(), CommitError> {
        self.change(|standing| {
            if standing.drains.contains_key(worker) {
                return Change::default();
            }
            let change = Change::default().put(format!("{DRAIN}{worker}"), value(&drain));
            standing.drains.insert(worker.to_owned(), drain);
            change
        })
    }

    /// Lets a worker have something again. Writes to the disk.
    pub fn give_back(&self, worker: &str) -> Result<(), CommitError> {
        self.change(|standing| match standing.drains.remove(worker) {
            Some(_) => Change::default().delete(format!("{DRAIN}{worker}")),
            None => Change::default(),
        })
    }

    /// Pins a replica, and forgets the pin at the place that its model shall leave for it. Writes to
    /// the disk.
    pub fn pin(&self, pin: Pin) -> Result<(), CommitError> {
        self.change(|standing| {
            let replaced = |one: &Pin| {
                one.model == pin.model && (one.at == pin.at || pin.from.as_ref() == Some(&one.at))
            };
            let gone = standing.pins.extract_if(.., |one| replaced(one));
            let change = gone.fold(Change::default(), |change, one| change.delete(key(&one)));
            let change = change.put(key(&pin), value(&pin));
            standing.pins.push(pin);
            change
        })
    }

    /// Forgets a pin. Writes to the disk.
    pub fn unpin(&self, model: &str, at: &Seat) -> Result<(), CommitError> {
        self.change(|standing| {
            let meant = |one: &mut Pin| one.model == model && one.at == *at;
            let gone = standing.pins.extract_if(.., meant);
            gone.fold(Change::default(), |change, one| change.delete(key(&one)))
        })
    }

    /// Notes that the places left for these pins are left. Writes to the disk.
    pub fn left(&self, pins: &[Pin]) -> Result<(), CommitError> {
        self.change(|standing| {
            let mut change = Change::default();
            for one in standing.pins.iter_mut().filter(|one| pins.contains(one)) {
                one.from = None;
                change = change.put(key(one), value(one));
            }
            change
        })
    }

    /// Makes a change durable, then known.
    fn change(&self, make: impl FnOnce(&mut Standing) -> Change) -> Result<(), CommitError> {
        let mut store = self.store.lock();
        let mut standing = Standing::clone(&self.standing.load());
        let change = make(&mut standing);
        if let Some(store) = store.as_mut() {
            store.commit(change)?;
        }
        self.standing.store(Arc::new(standing));
        Ok(())
    }
}

impl Standing {
    fn read(records: &store::Records) -> Self {
        let mut standing = Self::default();
        for (key, value) in records {
            if let Some(worker) = key.strip_prefix(DRAIN) {
                if let Some(drain) = known(key, value) {
                    standing.drains.insert(worker.to_owned(), drain);
                }
            } else if let Some(pin) = known(key, value) {
                standing.pins.push(pin);
            }
        }
        standing.pins.sort_by_key(|pin: &Pin| pin.since_ms);
        standing
    }

    /// Whether a worker shall have nothing.
    pub fn drains(&self, worker: &str) -> bool {
        self.drains.contains_key(worker)
    }

    /// The pin of a model at a place.
    pub fn pin(&self, model: &str, at: &Seat) -> Option<&Pin> {
        self.pins.iter().find(|pin| pin.model == model && pin.at == *at)
    }
}

fn known<T: DeserializeOwned>(key: &str, value: &Value) -> Option<T> {
    let read = serde_json::from_value(value.clone());
    read.inspect_err(|error| {
        tracing::error!(key, %error, "a kept order cannot be read; it is let be");
    })
    .ok()
}

fn key(pin: &Pin) -> String {
    let Seat { worker, gpu, position } = &pin.at;
    format!("{PIN}{}/{worker}/{gpu}/{position}", pin.model)
}

fn value(order: &impl Serialize) -> Value {
    serde_json::to_value(order).expect("maps with text keys can be written as JSON")
}

#[cfg(test)]
mod tests;

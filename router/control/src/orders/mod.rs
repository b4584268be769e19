//! Orders: what an operator wants of the fleet until he says otherwise.
//!
//! A worker is drained, a replica is pinned, a model is unloaded. An order is made durable before anybody hears of it, so
//! that a router that starts again goes on where it was. Routers that share an etcd share their orders
//! there, changed objectives among them: the leader takes them, the others hear of them.

mod asked;
mod error;
mod handover;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use config::Objective;
use parking_lot::Mutex;
use policy::fleet::SliceId;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use store::{Change, OpenError, Records, Schema};
use tokio::sync::watch;

pub use self::{
    asked::{Order, PinAsked},
    error::OrderError,
};
use crate::records::{KeepError, Keeping, SharedRecords};

const FILE: &str = "orders.log";
const SCHEMA: Schema = Schema { migrations: &[] };
/// The most pins there may be.
pub const MOST_PINS: usize = 10_000;

const DRAIN: &str = "drain/";
const PIN: &str = "pin/";
const OBJECTIVE: &str = "objective/";
const UNLOAD: &str = "unload/";

/// Every order that stands.
///
/// Whoever changes something holds `store` from reading to writing; who only looks never waits.
#[derive(Debug)]
pub struct Orders {
    store: Mutex<Keeping>,
    shared: bool,
    standing: watch::Sender<Arc<StandingOrders>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StandingOrders {
    pub drains: BTreeMap<String, Drain>,
    /// Replicas that shall be where they are wanted, the oldest order first.
    pub pins: Vec<Pin>,
    /// Models that shall not be served, by name.
    pub unloads: BTreeMap<String, Unload>,
    /// Objectives other than those in the files, by model. Only routers that share them keep them.
    pub objectives: BTreeMap<String, Aim>,
}

/// Another objective; what is absent is as the file has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Aim {
    pub slo_ms: Option<f64>,
    /// The share of requests that must be within it.
    pub slo_target: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

/// A model is taken out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unload {
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Its model.
    pub model: String,
    pub at: SliceId,
    /// Where its model shall leave for it, until it has.
    pub from: Option<SliceId>,
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

impl Orders {
    /// Those kept in `state_dir`; without one, none, and none will be kept.
    pub fn open(state_dir: Option<&Path>) -> Result<Arc<Self>, OpenError> {
        let orders = Self::elsewhere();
        orders.reopen(state_dir, None)?;
        Ok(orders)
    }

    /// Those in etcd, once they are heard of.
    pub fn shared(records: SharedRecords) -> Arc<Self> {
        let store = Mutex::new(Keeping::Etcd(records));
        Arc::new(Self { store, shared: true, standing: watch::Sender::default() })
    }

    pub fn are_shared(&self) -> bool {
        self.shared
    }

    /// Takes what is in `records` for all orders there are. May wait for a change that is being
    /// written.
    pub fn replace(&self, records: &Records) {
        let _store = self.store.lock();
        self.standing.send_replace(Arc::new(StandingOrders::read(records)));
    }

    /// Takes in what another router changed. May wait for a change that is being written.
    pub fn learn(&self, change: Change) {
        let _store = self.store.lock();
        let mut standing = StandingOrders::clone(&self.standing.borrow());
        let (put, deleted) = change.into_parts();
        deleted.iter().for_each(|key| standing.forget(key));
        put.iter().for_each(|(key, value)| standing.take(key, value));
        standing.pins.sort_by_key(|pin| pin.since_ms);
        self.standing.send_replace(Arc::new(standing));
    }

    /// Has a model another objective at every router. Writes to etcd.
    pub fn aim(&self, asked: &Objective) -> Result<(), KeepError> {
        self.change(|standing| {
            let aim = standing.objectives.entry(asked.model.clone()).or_default();
            aim.slo_ms = asked.slo_ms.or(aim.slo_ms);
            aim.slo_target = asked.slo_target.or(aim.slo_target);
            Change::default().put(format!("{OBJECTIVE}{}", asked.model), value(aim))
        })
    }

    /// Has every model the objective of the file again. Writes to etcd.
    pub fn aim_as_before(&self) -> Result<(), KeepError> {
        self.change(|standing| {
            let gone = std::mem::take(&mut standing.objectives);
            let keys = gone.keys().map(|model| format!("{OBJECTIVE}{model}"));
            keys.fold(Change::default(), Change::delete)
        })
    }

    pub fn standing(&self) -> Arc<StandingOrders> {
        Arc::clone(&self.standing.borrow())
    }

    pub fn changed(&self) -> watch::Receiver<Arc<StandingOrders>> {
        self.standing.subscribe()
    }

    /// Drains a worker; one that is drained already stays as it is. Writes to the disk.
    pub fn drain(&self, worker: &str, drain: Drain) -> Result<(), KeepError> {
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
    pub fn give_back(&self, worker: &str) -> Result<(), KeepError> {
        self.change(|standing| match standing.drains.remove(worker) {
            Some(_) => Change::default().delete(format!("{DRAIN}{worker}")),
            None => Change::default(),
        })
    }

    /// Takes a model out of service; one that is out already stays as it is. Writes to the disk.
    pub fn unload(&self, model: &str, unload: Unload) -> Result<(), KeepError> {
        self.change(|standing| {
            if standing.unloads.contains_key(model) {
                return Change::default();
            }
            let change = Change::default().put(format!("{UNLOAD}{model}"), value(&unload));
            standing.unloads.insert(model.to_owned(), unload);
            change
        })
    }

    /// Puts a model back in service. Writes to the disk.
    pub fn load(&self, model: &str) -> Result<(), KeepError> {
        self.change(|standing| match standing.unloads.remove(model) {
            Some(_) => Change::default().delete(format!("{UNLOAD}{model}")),
            None => Change::default(),
        })
    }

    /// Pins a replica, and forgets the pin at the place that its model shall leave for it. Writes to
    /// the disk.
    pub fn pin(&self, pin: Pin) -> Result<(), KeepError> {
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
    pub fn unpin(&self, model: &str, at: &SliceId) -> Result<(), KeepError> {
        self.change(|standing| {
            let meant = |one: &mut Pin| one.model == model && one.at == *at;
            let gone = standing.pins.extract_if(.., meant);
            gone.fold(Change::default(), |change, one| change.delete(key(&one)))
        })
    }

    /// Notes that the places left for these pins are left. Writes to the disk.
    pub fn left(&self, pins: &[Pin]) -> Result<(), KeepError> {
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
    fn change(&self, make: impl FnOnce(&mut StandingOrders) -> Change) -> Result<(), KeepError> {
        let mut store = self.store.lock();
        let mut standing = StandingOrders::clone(&self.standing.borrow());
        let change = make(&mut standing);
        store.commit(change)?;
        self.standing.send_replace(Arc::new(standing));
        Ok(())
    }
}

impl StandingOrders {
    fn read(records: &Records) -> Self {
        let mut standing = Self::default();
        records.iter().for_each(|(key, value)| standing.take(key, value));
        standing.pins.sort_by_key(|pin: &Pin| pin.since_ms);
        standing
    }

    fn take(&mut self, key: &str, value: &Value) {
        self.forget(key);
        if let Some(worker) = key.strip_prefix(DRAIN) {
            self.drains.extend(known(key, value).map(|drain| (worker.to_owned(), drain)));
        } else if let Some(model) = key.strip_prefix(OBJECTIVE) {
            self.objectives.extend(known(key, value).map(|aim| (model.to_owned(), aim)));
        } else if let Some(model) = key.strip_prefix(UNLOAD) {
            self.unloads.extend(known(key, value).map(|unload| (model.to_owned(), unload)));
        } else if key.starts_with(PIN) {
            self.pins.extend(known::<Pin>(key, value));
        }
    }

    fn forget(&mut self, gone: &str) {
        if let Some(worker) = gone.strip_prefix(DRAIN) {
            self.drains.remove(worker);
        } else if let Some(model) = gone.strip_prefix(OBJECTIVE) {
            self.objectives.remove(model);
        } else if let Some(model) = gone.strip_prefix(UNLOAD) {
            self.unloads.remove(model);
        } else if gone.starts_with(PIN) {
            self.pins.retain(|pin| key(pin) != gone);
        }
    }

    pub fn drains(&self, worker: &str) -> bool {
        self.drains.contains_key(worker)
    }

    pub fn unloads(&self, model: &str) -> bool {
        self.unloads.contains_key(model)
    }

    pub fn pin(&self, model: &str, at: &SliceId) -> Option<&Pin> {
        self.pins.iter().find(|pin| pin.model == model && pin.at == *at)
    }
}

fn known<T: DeserializeOwned>(key: &str, value: &Value) -> Option<T> {
    let read = serde_json::from_value(value.clone());
    read.inspect_err(|error| {
        tracing::error!(key, %error, "skipped unreadable operator override");
    })
    .ok()
}

fn key(pin: &Pin) -> String {
    let SliceId { worker, gpu, position } = &pin.at;
    format!("{PIN}{}/{worker}/{gpu}/{position}", pin.model)
}

fn value(order: &impl Serialize) -> Value {
    serde_json::to_value(order).expect("maps with text keys can be written as JSON")
}

#[cfg(test)]
mod tests;

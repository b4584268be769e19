//! Orders pass from one process to the next: one closes the store, the other opens it.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;
use store::{OpenError, Records, Store};
use tokio::sync::watch;

use super::{DRAIN, FILE, OBJECTIVE, Orders, SCHEMA, StandingOrders, key, value};
use crate::records::{Keeping, open};

impl Orders {
    /// None that is known yet: another process has the store.
    pub fn elsewhere() -> Arc<Self> {
        let store = Mutex::new(Keeping::Elsewhere);
        Arc::new(Self { store, shared: false, standing: watch::Sender::default() })
    }

    /// Whether the store in `state_dir` can be opened by this program. Changes nothing.
    pub fn check(state_dir: &Path) -> Result<(), OpenError> {
        Store::check(&state_dir.join(FILE), &SCHEMA)
    }

    /// Closes the store, so that another process can open it. Changes fail from here on.
    ///
    /// Returns all records where no store has them.
    pub fn release(&self) -> Option<Records> {
        let mut store = self.store.lock();
        match std::mem::replace(&mut *store, Keeping::Elsewhere) {
            Keeping::Nowhere => Some(self.standing().records()),
            Keeping::File(_) | Keeping::Etcd(_) | Keeping::Elsewhere => None,
        }
    }

    /// Opens the store again, or for the first time; without one, `records` are all there are.
    pub fn reopen(
        &self,
        state_dir: Option<&Path>,
        records: Option<&Records>,
    ) -> Result<(), OpenError> {
        let mut store = self.store.lock();
        let take = |records| self.standing.send_replace(Arc::new(StandingOrders::read(records)));
        if let Some(state_dir) = state_dir {
            let opened = open(&state_dir.join(FILE), &SCHEMA)?;
            take(opened.records());
            *store = Keeping::File(opened);
        } else {
            records.map(take);
            *store = Keeping::Nowhere;
        }
        Ok(())
    }
}

impl StandingOrders {
    fn records(&self) -> Records {
        let drains =
            self.drains.iter().map(|(name, drain)| (format!("{DRAIN}{name}"), value(drain)));
        let pins = self.pins.iter().map(|pin| (key(pin), value(pin)));
        let aims = self.objectives.iter();
        let aims = aims.map(|(model, aim)| (format!("{OBJECTIVE}{model}"), value(aim)));
        drains.chain(pins).chain(aims).collect()
    }
}

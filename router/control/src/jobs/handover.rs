//! Jobs pass from one process to the next: one closes the store, the other opens it.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;
use store::{OpenError, Records, Store};
use tokio::sync::Notify;

use super::{FILE, Jobs, Kept, SCHEMA, key, value};
use crate::records::{Keeping, open};

impl Jobs {
    /// None that is known yet: another process has the store.
    pub fn elsewhere() -> Arc<Self> {
        let kept = Mutex::new(Kept { next: 1, ..Kept::default() });
        Arc::new(Self { store: Mutex::new(Keeping::Elsewhere), kept, changed: Notify::new() })
    }

    /// Whether the store in `state_dir` can be opened by this program. Changes nothing.
    pub fn check(state_dir: &Path) -> Result<(), OpenError> {
        Store::check(&state_dir.join(FILE), &SCHEMA)
    }

    /// Closes the store, so that another process can open it. Changes fail from here on.
    ///
    /// Returns all records where no store has them. Writes to the disk.
    pub fn release(&self) -> Option<Records> {
        let accounts = self.accounts();
        if let Err(error) = self.write_rest(accounts) {
            tracing::warn!(%error, "failed to persist the progress of jobs before a handover");
        }
        let mut store = self.store.lock();
        match std::mem::replace(&mut *store, Keeping::Elsewhere) {
            Keeping::Nowhere => Some(self.records()),
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
        if let Some(state_dir) = state_dir {
            let opened = open(&state_dir.join(FILE), &SCHEMA)?;
            self.read_all(opened.records());
            *store = Keeping::File(opened);
        } else {
            if let Some(records) = records {
                self.read_all(records);
            }
            *store = Keeping::Nowhere;
        }
        drop(store);
        self.changed.notify_waiters();
        Ok(())
    }

    pub(super) fn read_all(&self, records: &Records) {
        let mut kept = self.kept.lock();
        *kept = Kept { next: 1, counts: kept.counts, ..Kept::default() };
        kept.read(records);
    }

    fn records(&self) -> Records {
        let kept = self.kept.lock();
        let jobs = kept.records.values().map(|record| (key(record.id), value(record)));
        let accounts = kept.accounts.iter().map(|(tenant, account)| {
            let value = serde_json::json!([account.received, account.deserved]);
            (format!("account/{tenant}"), value)
        });
        jobs.chain(accounts).collect()
    }
}

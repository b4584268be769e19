//! What is known of jobs while the router runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use policy::{job::Counts, loan::Account};

use super::{JobError, JobRecord, JobSpec, Waits};

const REMEMBERED: usize = 1000;
const MOST_UNFINISHED: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) records: BTreeMap<u64, JobRecord>,
    pub(super) accounts: BTreeMap<String, Account>,
    pub(super) by_key: HashMap<String, u64>,
    pub(super) next: u64,
    /// Jobs that differ from what is on the disk.
    pub(super) unwritten: BTreeSet<u64>,
    /// Why each waiting job waits and when it may start, as last decided.
    pub(super) waits: BTreeMap<u64, Waits>,
    pub(super) counts: Counts,
}

impl Kept {
    pub(super) fn read(&mut self, records: &store::Records) {
        for (key, value) in records {
            if let Some(tenant) = key.strip_prefix("account/") {
                if let Ok((received, deserved)) = serde_json::from_value(value.clone()) {
                    self.accounts.insert(tenant.to_owned(), Account { received, deserved });
                }
                continue;
            }
            // Where records are shared, there are others beside those of jobs.
            if !key.starts_with("job/") {
                continue;
            }
            match serde_json::from_value::<JobRecord>(value.clone()) {
                Ok(record) => self.take(record),
                Err(error) => {
                    tracing::error!(key, %error, "a kept record cannot be read; it is let be");
                    // Its number must not be given to another.
                    self.next = self.next.max(super::number(key).unwrap_or(0).saturating_add(1));
                }
            }
        }
    }

    pub(super) fn take(&mut self, record: JobRecord) {
        self.next = self.next.max(record.id.saturating_add(1));
        if let Some(key) = &record.idempotency_key {
            self.by_key.insert(key.clone(), record.id);
        }
        self.records.insert(record.id, record);
    }

    pub(super) fn forget(&mut self, id: u64) {
        if let Some(key) = self.records.remove(&id).and_then(|record| record.idempotency_key) {
            self.by_key.remove(&key);
        }
    }

    pub(super) fn known(&self, key: &str) -> Option<&JobRecord> {
        self.records.get(self.by_key.get(key)?)
    }

    pub(super) fn room_for(&self, spec: &JobSpec, most: u32) -> Result<(), JobError> {
        let unfinished = || self.records.values().filter(|record| !record.life.state.is_over());
        let all = unfinished().count();
        if all >= MOST_UNFINISHED {
            let whose = "there are".to_owned();
            return Err(JobError::TooMany { whose, unfinished: all, most: MOST_UNFINISHED });
        }
        let mine = unfinished().filter(|record| record.spec.tenant == spec.tenant).count();
        if mine >= most as usize {
            let whose =
                spec.tenant.as_ref().map_or_else(|| "there are".to_owned(), |t| format!("{t} has"));
            return Err(JobError::TooMany { whose, unfinished: mine, most: most as usize });
        }
        Ok(())
    }

    /// The oldest of too many jobs that ended.
    pub(super) fn outdated(&self) -> Vec<u64> {
        let over = self.records.values().filter(|record| record.life.state.is_over());
        let mut over: Vec<u64> = over.map(|record| record.id).collect();
        over.truncate(over.len().saturating_sub(REMEMBERED));
        over
    }
}

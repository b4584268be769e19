//! Training jobs: what is kept of them, what is asked of them, and what they are told.
//!
//! [`Jobs`] is the one place where a job changes. A change is made durable before anybody hears of
//! it, so that no job is lost, and none is started that was not written down as started.

mod error;
mod handover;
mod kept;
mod record;
mod submission;
mod view;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use parking_lot::Mutex;
use policy::{fleet::SliceId, loan::Account};
use serde_json::Value;
use store::{Change, OpenError, Records, Schema};
use tokio::sync::{Notify, futures::Notified};

pub use policy::{
    job::{Counts, Life, Progress, State, Step, Stopping},
    round::{JobChange, Waits},
};

use self::kept::Kept;
pub(crate) use self::submission::profile_compute;
pub use self::{
    error::JobError,
    record::{JobRecord, JobSpec},
    submission::{Slices, Submission},
    view::{Brief, JobView, JobsState, LoansState},
};
use crate::records::{KeepError, Keeping, SharedRecords};

const FILE: &str = "state.log";
/// Jobs that are shown with the state of the router.
const SHOWN: usize = 100;
/// How long it may take to hear of a rank that stopped at the last moment.
const GRACE_MS: u64 = 2_000;
const SCHEMA: Schema = Schema { migrations: &[] };

/// Every job that is known.
///
/// Whoever changes something holds `store` from reading to writing; who only looks takes `kept`,
/// which is never held while the disk is waited for.
#[derive(Debug)]
pub struct Jobs {
    store: Mutex<Keeping>,
    kept: Mutex<Kept>,
    changed: Notify,
}

#[derive(Clone, Debug)]
pub struct Submitted {
    pub record: JobRecord,
    /// Whether it is new, rather than one submitted before with the same key.
    pub is_new: bool,
}

impl Jobs {
    /// Those kept in `state_dir`; without one, none, and none will be kept.
    pub fn open(state_dir: Option<&Path>) -> Result<Arc<Self>, OpenError> {
        let jobs = Self::elsewhere();
        jobs.reopen(state_dir, None)?;
        Ok(jobs)
    }

    /// Those that several routers share, of which none is known yet.
    pub fn shared(records: SharedRecords) -> Arc<Self> {
        let kept = Mutex::new(Kept { next: 1, ..Kept::default() });
        let store = Mutex::new(Keeping::Etcd(records));
        Arc::new(Self { store, kept, changed: Notify::new() })
    }

    /// Takes `records` for all there is. May wait for a change that is being written.
    pub fn replace(&self, records: &Records) {
        let _store = self.store.lock();
        self.read_all(records);
        self.changed.notify_waiters();
    }

    /// Takes in what another router changed. May wait for a change that is being written.
    pub fn learn(&self, change: Change) {
        let _store = self.store.lock();
        let (put, deleted) = change.into_parts();
        let mut kept = self.kept.lock();
        kept.read(&put);
        for id in deleted.iter().filter_map(|key| number(key)) {
            kept.forget(id);
        }
        drop(kept);
        self.changed.notify_waiters();
    }

    /// Reckons by a clock that may have been set back while nobody looked.
    pub fn redate(&self, now_ms: u64) {
        let mut kept = self.kept.lock();
        for record in kept.records.values_mut().filter(|record| record.life.since_ms > now_ms) {
            tracing::warn!(job = record.id, "the clock was set back; the job is dated anew");
            record.redate(now_ms);
        }
    }

    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Queues `spec`, unless the same was submitted with the same key before.
    ///
    /// Writes to the disk: not for a thread that others wait for.
    pub fn submit(
        &self,
        spec: JobSpec,
        key: Option<String>,
        most: u32,
        now_ms: u64,
    ) -> Result<Submitted, JobError> {
        let mut store = self.store.lock();
        if let Some(known) = self.submitted(&spec, key.as_deref())? {
            return Ok(known);
        }
        let record = {
            let kept = self.kept.lock();
            kept.room_for(&spec, most)?;
            JobRecord::new(kept.next, spec, key, now_ms)
        };
        self.put(&mut store, vec![record.clone()])?;
        Ok(Submitted { record, is_new: true })
    }

    /// The job that was submitted with `key` before, if it asks for the same.
    pub fn submitted(
        &self,
        spec: &JobSpec,
        key: Option<&str>,
    ) -> Result<Option<Submitted>, JobError> {
        let kept = self.kept.lock();
        let Some(record) = key.and_then(|key| kept.known(key)) else { return Ok(None) };
        let same = JobSpec { deadline_ms: record.spec.deadline_ms, ..spec.clone() };
        if record.spec == same {
            Ok(Some(Submitted { record: record.clone(), is_new: false }))
        } else {
            Err(JobError::KeyReused { id: record.id })
        }
    }

    /// Ends a job by request; one that has ended stays as it is. Writes to the disk.
    pub fn cancel(&self, id: u64, notice_ms: u64, now_ms: u64) -> Result<(), JobError> {
        let mut store = self.store.lock();
        let known = self.kept.lock().records.get(&id).cloned();
        let mut record = known.ok_or_else(|| JobError::Unknown { given: id.to_string() })?;
        let told = record.life.stop.as_ref().is_some_and(|stop| stop.then == State::Cancelled);
        if record.life.state.is_over() || told {
            return Ok(());
        }
        let reason = "cancelled by request".to_owned();
        if record.life.state.waits() {
            record.life.enter(State::Cancelled, reason, now_ms);
        } else {
            let (then, seats, by_ms) = (State::Cancelled, Vec::new(), now_ms + notice_ms);
            let stop = Stopping { then, seats, reason, notice_ms, by_ms };
            record.life.stop(State::Noticed, stop, now_ms);
        }
        Ok(self.put(&mut store, vec![record])?)
    }

    pub fn get(&self, id: u64) -> Option<JobView> {
        let kept = self.kept.lock();
        let record = kept.records.get(&id)?;
        Some(JobView::new(record, kept.waits.get(&id)))
    }

    /// Every job that is known, the newest first.
    pub fn list(&self) -> Vec<Brief> {
        let kept = self.kept.lock();
        let brief = |record: &JobRecord| Brief::new(record, kept.waits.get(&record.id));
        kept.records.values().rev().map(brief).collect()
    }

    /// Jobs and loans at `now_ms`, for whoever looks; `allow` are the programs a job may start.
    pub fn state(&self, allow: Vec<String>, now_ms: u64) -> JobsState {
        let kept = self.kept.lock();
        let count =
            |state| kept.records.values().filter(|record| record.life.state == state).count();
        let states = State::ALL.map(|state| (state.name().to_owned(), count(state))).into();
        let newest = || kept.records.values().rev();
        let over = newest().filter(|record| record.life.state.is_over());
        let shown = newest().filter(|record| !record.life.state.is_over()).chain(over).take(SHOWN);
        let brief = |record: &JobRecord| Brief::new(record, kept.waits.get(&record.id));
        let shown = shown.map(brief).collect();
        let mut loans = LoansState::default();
        for record in newest().filter(|record| !record.life.seats.is_empty()) {
            *match &record.life.stop {
                None => &mut loans.lent,
                Some(stop) if stop.by_ms.saturating_add(GRACE_MS) >= now_ms => &mut loans.returning,
                Some(_) => &mut loans.overdue,
            } += record.life.seats.len();
        }
        JobsState { allow, states, loans, counts: kept.counts, shown }
    }

    pub fn unfinished(&self) -> Vec<JobRecord> {
        let kept = self.kept.lock();
        kept.records.values().filter(|record| !record.life.state.is_over()).cloned().collect()
    }

    /// Where the ranks of a job are, or were last; nothing if there is no such job.
    pub fn seats(&self, id: u64) -> Option<Vec<SliceId>> {
        let kept = self.kept.lock();
        let record = kept.records.get(&id)?;
        let held = !record.life.seats.is_empty();
        Some(if held { record.life.seats.clone() } else { record.life.last_seats.clone() })
    }

    pub fn accounts(&self) -> BTreeMap<String, Account> {
        self.kept.lock().accounts.clone()
    }

    /// Writes changed jobs down, and then takes them for true.
    ///
    /// A job that somebody else changed since it was read, which only a caller's request does, keeps
    /// that change and loses this one. How far jobs are is written now and then: see
    /// [`Jobs::write_rest`]. Writes to the disk.
    pub fn keep(&self, changes: &[JobChange], counts: Counts) -> Result<(), KeepError> {
        let mut store = self.store.lock();
        let mut steps = Vec::new();
        let mut kept = self.kept.lock();
        for JobChange { id, before, after } in changes {
            let Some(record) = kept.records.get_mut(id).filter(|one| one.life == *before) else {
                continue;
            };
            if before.steady() == after.steady() {
                record.life = after.clone();
                kept.unwritten.insert(*id);
            } else {
                steps.push(JobRecord { life: after.clone(), ..record.clone() });
            }
        }
        drop(kept);
        if !steps.is_empty() {
            self.put(&mut store, steps)?;
        }
        self.kept.lock().counts.add(counts);
        Ok(())
    }

    /// By slice, the job that has it or goes on with it.
    pub fn lent(&self) -> BTreeMap<SliceId, u64> {
        let kept = self.kept.lock();
        let unfinished = kept.records.values().filter(|record| !record.life.state.is_over());
        let slices = unfinished
            .flat_map(|record| record.life.slices().map(|slice| (slice.clone(), record.id)));
        slices.collect()
    }

    /// Writes down how far jobs are, and what each tenant has had and deserved.
    pub fn write_rest(&self, accounts: BTreeMap<String, Account>) -> Result<(), KeepError> {
        let mut store = self.store.lock();
        let mut change = Change::default();
        {
            let mut kept = self.kept.lock();
            for id in std::mem::take(&mut kept.unwritten) {
                if let Some(record) = kept.records.get(&id) {
                    change = change.put(key(id), value(record));
                }
            }
            for (tenant, account) in &accounts {
                let value = serde_json::json!([account.received, account.deserved]);
                change = change.put(format!("account/{tenant}"), value);
            }
            kept.accounts = accounts;
        }
        store.commit(change)
    }

    pub fn explain(&self, waits: BTreeMap<u64, Waits>) {
        self.kept.lock().waits = waits;
    }

    /// Makes `records` durable, then known; the oldest that ended are forgotten.
    fn put(&self, store: &mut Keeping, records: Vec<JobRecord>) -> Result<(), KeepError> {
        let mut change = Change::default();
        for record in &records {
            change = change.put(key(record.id), value(record));
        }
        let forgotten = self.kept.lock().outdated();
        for id in &forgotten {
            change = change.delete(key(*id));
        }
        store.commit(change)?;
        let mut kept = self.kept.lock();
        for id in forgotten {
            kept.forget(id);
        }
        for record in records {
            if kept
                .records
                .get(&record.id)
                .is_none_or(|before| before.life.state != record.life.state)
            {
                tell(&record);
                kept.counts.entered(record.life.state);
            }
            kept.take(record);
        }
        drop(kept);
        self.changed.notify_waiters();
        Ok(())
    }
}

fn tell(record: &JobRecord) {
    let (job, state, reason) = (record.id, record.life.state.name(), &record.life.reason);
    tracing::info!(job, name = record.spec.name, state, reason, "job");
}

fn key(id: u64) -> String {
    format!("job/{id:020}")
}

/// The number of the job that is kept under `key`.
fn number(key: &str) -> Option<u64> {
    key.strip_prefix("job/")?.parse().ok()
}

fn value(record: &JobRecord) -> Value {
    serde_json::to_value(record).expect("maps with text keys can be written as JSON")
}

#[cfg(test)]
mod tests;

//! Jobs as their owners and operators see them.

use std::collections::BTreeMap;

use policy::{
    fleet::SliceId,
    job::{Progress, State, Step},
};
use serde::{Deserialize, Serialize};

use super::{Counts, JobRecord, Waits};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    pub id: u64,
    pub name: String,
    pub tenant: Option<String>,
    pub state: State,
    /// Why; for one that waits, what for.
    pub reason: String,
    pub since_ms: u64,
    pub submitted_ms: u64,
    pub slices: usize,
    pub progress: Option<Progress>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    #[serde(flatten)]
    pub brief: Brief,
    pub argv: Vec<String>,
    pub slices_wanted: (u32, u32),
    pub profile: Option<String>,
    /// Memory it needs on each slice.
    pub memory_mib: u64,
    pub deadline_ms: Option<u64>,
    /// When it must start at the latest to keep its deadline; told when it is submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_by_ms: Option<u64>,
    pub may_start_ms: Option<u64>,
    pub seats: Vec<SliceId>,
    pub starts: u32,
    /// How often it failed by itself, and how often it may.
    pub failures: (u32, u32),
    pub ran_s: f64,
    /// GPU-seconds it has had.
    pub attained_gpu_s: f64,
    /// GPU-seconds of work that were lost.
    pub lost_gpu_s: f64,
    /// What it did before, oldest first.
    pub history: Vec<Step>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobsState {
    /// The programs a job may start; with none, there are no jobs.
    pub allow: Vec<String>,
    pub states: BTreeMap<String, usize>,
    pub loans: LoansState,
    pub counts: Counts,
    /// Jobs that have not ended, then those that have, the newest of each first; at most a hundred.
    pub shown: Vec<Brief>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoansState {
    pub lent: usize,
    /// To jobs that were told to give them back and have time left for it.
    pub returning: usize,
    pub overdue: usize,
}

impl Brief {
    pub(super) fn new(record: &JobRecord, waits: Option<&Waits>) -> Self {
        let why = waits.filter(|_| record.life.state.waits()).map(|waits| waits.why.clone());
        Self {
            id: record.id,
            name: record.spec.name.clone(),
            tenant: record.spec.tenant.clone(),
            state: record.life.state,
            reason: why.unwrap_or_else(|| record.life.reason.clone()),
            since_ms: record.life.since_ms,
            submitted_ms: record.submitted_ms,
            slices: record.life.seats.len(),
            progress: record.life.progress,
        }
    }
}

impl JobView {
    pub(super) fn new(record: &JobRecord, waits: Option<&Waits>) -> Self {
        let spec = &record.spec;
        let waits = waits.filter(|_| record.life.state.waits());
        Self {
            brief: Brief::new(record, waits),
            argv: spec.argv.clone(),
            slices_wanted: (spec.slices_min, spec.slices_max),
            profile: spec.profile.clone(),
            memory_mib: spec.memory_mib,
            deadline_ms: spec.deadline_ms,
            start_by_ms: None,
            may_start_ms: waits.and_then(|waits| waits.may_start_ms),
            seats: record.life.seats.clone(),
            starts: record.life.run,
            failures: (record.life.failures, spec.retries),
            ran_s: record.life.ran_s,
            attained_gpu_s: record.life.attained_gpu_s,
            lost_gpu_s: record.life.lost_gpu_s,
            history: record.life.history.clone(),
        }
    }
}

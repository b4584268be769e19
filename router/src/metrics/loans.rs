//! The metrics of training jobs, and their families.

use super::{
    Kind, Spec, Unit,
    page::{Page, Sample},
    spec,
};
use crate::{
    jobs::{Counts, State as JobState},
    state::State,
};

pub(super) const LOANS: Spec = spec(
    "sluice_loans",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Training jobs that have not ended, by state.",
);
pub(super) const ENDED: Spec = spec(
    "sluice_jobs_ended_total",
    Unit::Count,
    Kind::Counter,
    &["outcome"],
    "Training jobs that ended, by how: done, failed or cancelled.",
);
pub(super) const RECLAIMS: Spec = spec(
    "sluice_loan_reclaims_total",
    Unit::Count,
    Kind::Counter,
    &["reason"],
    "Calls to give slices back, by reason: inference, inference with less than the usual notice (emergency), or another job.",
);
pub(super) const OVERDUE: Spec = spec(
    "sluice_loan_kills_total",
    Unit::Count,
    Kind::Counter,
    &[],
    "Jobs killed because they did not stop within their notice.",
);
pub(super) const LOST: Spec = spec(
    "sluice_loan_lost_seconds_total",
    Unit::Seconds,
    Kind::Counter,
    &[],
    "GPU-seconds of training that were done since the last checkpoint when a job stopped.",
);

/// Writes them.
pub(super) fn write(page: &mut Page, state: &State) {
    let Counts { for_inference, in_emergency, for_jobs, overdue, .. } = state.loans.totals;
    let Counts { lost_gpu_s, done, failed, cancelled, .. } = state.loans.totals;
    let unfinished = JobState::ALL.into_iter().filter(|state| !state.is_over());
    let count = |name: &str| state.loans.jobs.get(name).copied().unwrap_or(0);
    page.family(&LOANS, unfinished.map(|state| Sample::count([state.name()], count(state.name()))));
    let ended = [("done", done), ("failed", failed), ("cancelled", cancelled)];
    page.family(&ENDED, ended.map(|(outcome, count)| Sample::count([outcome], count)));
    let usual = for_inference.saturating_sub(in_emergency);
    let reclaims = [("inference", usual), ("emergency", in_emergency), ("job", for_jobs)];
    page.family(&RECLAIMS, reclaims.map(|(reason, count)| Sample::count([reason], count)));
    page.family(&OVERDUE, [Sample::count([], overdue)]);
    page.family(&LOST, [Sample::number([], lost_gpu_s)]);
}

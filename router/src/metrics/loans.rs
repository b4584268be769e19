//! The metrics of loans and jobs, and their families.

use super::{
    Kind, Spec, Unit,
    page::{count, number},
    spec,
};
use crate::state::State;

pub(super) const JOBS: Spec = spec(
    "sluice_jobs",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Training jobs that are known, by state.",
);
pub(super) const LOANS: Spec = spec(
    "sluice_loans",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Slices on loan: lent, returning within their notice, or overdue.",
);
pub(super) const RECLAIMS: Spec = spec(
    "sluice_loan_reclaims_total",
    Unit::Count,
    Kind::Counter,
    &["reason"],
    "Loans called back: for inference, for it at once (emergency), or for another job.",
);
pub(super) const KILLS: Spec = spec(
    "sluice_loan_kills_total",
    Unit::Count,
    Kind::Counter,
    &[],
    "Jobs that were killed because they did not stop in time.",
);
pub(super) const LOST: Spec = spec(
    "sluice_loan_lost_seconds_total",
    Unit::Seconds,
    Kind::Counter,
    &[],
    "GPU-seconds of training that were done in vain.",
);

pub(super) fn record(state: &State) {
    let jobs = &state.jobs;
    for (state, known) in &jobs.states {
        number(&JOBS, [state], *known as f64);
    }
    let loans = jobs.loans;
    for (state, slices) in
        [("lent", loans.lent), ("returning", loans.returning), ("overdue", loans.overdue)]
    {
        number(&LOANS, [state], slices as f64);
    }
    let counts = jobs.counts;
    count(&RECLAIMS, ["inference"], counts.for_inference.saturating_sub(counts.in_emergency));
    count(&RECLAIMS, ["emergency"], counts.in_emergency);
    count(&RECLAIMS, ["job"], counts.for_jobs);
    count(&KILLS, [], counts.overdue);
    number(&LOST, [], counts.lost_gpu_s);
}

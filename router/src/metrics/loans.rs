//! The metrics of loans and jobs, and their families.

use super::{
    Kind, Spec, Unit,
    page::{count, number},
};
use crate::state::State;

pub(super) const JOBS: Spec =
    Spec::new("sluice_jobs", Unit::Count, Kind::Gauge, &["state"], "Training jobs by state.");
pub(super) const LOANS: Spec = Spec::new(
    "sluice_loans",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Slices on loan, by state: lent, returning within the notice period, or overdue.",
);
pub(super) const RECLAIMS: Spec = Spec::new(
    "sluice_loan_reclaims_total",
    Unit::Count,
    Kind::Counter,
    &["reason"],
    "Loans reclaimed, by reason: inference, emergency (inference, at once) or job (another job).",
);
pub(super) const KILLS: Spec = Spec::new(
    "sluice_loan_kills_total",
    Unit::Count,
    Kind::Counter,
    &[],
    "Jobs killed because they did not stop in time.",
);
pub(super) const LOST: Spec = Spec::new(
    "sluice_loan_lost_seconds_total",
    Unit::Seconds,
    Kind::Counter,
    &[],
    "GPU-seconds of training work lost.",
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

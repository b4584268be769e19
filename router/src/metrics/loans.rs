//! The metrics of loans and jobs, and their families.

use super::{
    Kind, Spec, Unit,
    page::{Page, Sample},
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

pub(super) fn write(page: &mut Page, state: &State) {
    let jobs = &state.jobs;
    page.family(
        &JOBS,
        jobs.states.iter().map(|(state, count)| Sample::count([&**state], *count as u64)),
    );
    let loans = jobs.loans;
    let loans = [("lent", loans.lent), ("returning", loans.returning), ("overdue", loans.overdue)];
    page.family(&LOANS, loans.map(|(state, slices)| Sample::count([state], slices as u64)));
    let counts = jobs.counts;
    let reclaims = [
        ("inference", counts.for_inference.saturating_sub(counts.in_emergency)),
        ("emergency", counts.in_emergency),
        ("job", counts.for_jobs),
    ];
    page.family(&RECLAIMS, reclaims.map(|(reason, count)| Sample::count([reason], count)));
    page.family(&KILLS, [Sample::count([], counts.overdue)]);
    page.family(&LOST, [Sample::number([], counts.lost_gpu_s)]);
}

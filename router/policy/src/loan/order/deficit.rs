//! Orders by what a job or its tenant is owed.

use super::{JobOrder, Rank};
use crate::loan::{Job, LoanWorld};

/// Parts of its time that a job must have had less than another to stop it.
const STEP: f64 = 0.5;
/// Doublings of the time it would have taken alone that are told apart.
const DOUBLING: f64 = 0.5;

/// Long-term GPU-time fairness, as Astraea does: the tenant that had least of what it deserves, then
/// its job that had least.
///
/// A job deserves the slices it asked for from its arrival on.
#[derive(Clone, Copy, Debug)]
pub struct Ltgf;

impl JobOrder for Ltgf {
    fn name(&self) -> &'static str {
        "ltgf"
    }

    fn rank(&self, job: &Job, world: &LoanWorld<'_>) -> Rank {
        let age = world.now.since(job.submitted).as_secs_f64();
        let had = if age > 0.0 { job.ran.as_secs_f64() / age } else { 0.0 };
        Rank::band((had / STEP).floor())
    }

    fn fair_tenants(&self) -> bool {
        true
    }
}

/// Finish-time fairness, as Themis does: who is the furthest behind the time it would have taken
/// alone goes first.
#[derive(Clone, Copy, Debug)]
pub struct Ftf;

impl JobOrder for Ftf {
    fn name(&self) -> &'static str {
        "ftf"
    }

    fn rank(&self, job: &Job, world: &LoanWorld<'_>) -> Rank {
        let age = world.now.since(job.submitted).as_secs_f64();
        let ran = job.ran.as_secs_f64();
        // With nothing known, as much is expected to come as has been.
        let remaining = job.remaining().map_or_else(|| ran.max(1.0), |left| left.as_secs_f64());
        let alone = (ran + remaining).max(1.0);
        let unfairness = (age + remaining) / alone;
        let step = (unfairness.max(1.0).log2() / DOUBLING).floor();
        Rank::band(-step)
    }
}

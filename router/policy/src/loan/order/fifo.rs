//! First come, first served, with and without backfilling.

use super::{JobOrder, Rank};
use crate::loan::{Job, LoanWorld};

/// Strictly by submission: while the first does not fit, nobody starts.
#[derive(Clone, Copy, Debug)]
pub struct Fifo;

impl JobOrder for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn rank(&self, _: &Job, _: &LoanWorld<'_>) -> Rank {
        Rank::band(0.0)
    }

    fn preempts(&self) -> bool {
        false
    }

    fn backfills(&self) -> bool {
        false
    }
}

/// By submission, with EASY backfilling: later jobs start if the first is not delayed.
#[derive(Clone, Copy, Debug)]
pub struct Backfill;

impl JobOrder for Backfill {
    fn name(&self) -> &'static str {
        "backfill"
    }

    fn rank(&self, _: &Job, _: &LoanWorld<'_>) -> Rank {
        Rank::band(0.0)
    }

    fn preempts(&self) -> bool {
        false
    }
}

//! Orders that need to know how long a job takes, or until when it must be done.

use super::{JobOrder, Rank, queue};
use crate::{
    loan::{Job, LoanWorld},
    moment::Moment,
};

/// Where the length is not known, a job stands behind all whose length is.
const UNKNOWN: f64 = 1e6;
/// Best-effort jobs stand behind all with a deadline.
const BEST_EFFORT: f64 = 1e6;

/// Shortest remaining time first.
///
/// Jobs whose remaining times differ by less than a factor of two do not stop each other.
#[derive(Clone, Copy, Debug)]
pub struct Srtf;

impl JobOrder for Srtf {
    fn name(&self) -> &'static str {
        "srtf"
    }

    fn rank(&self, job: &Job, _: &LoanWorld<'_>) -> Rank {
        match job.remaining() {
            Some(remaining) => {
                let seconds = remaining.as_secs_f64();
                Rank { band: seconds.max(1.0).log2().floor(), within: seconds }
            }
            None => Rank { band: UNKNOWN, within: job.counted() },
        }
    }
}

/// Earliest deadline first; those without one share what is left by attained service.
#[derive(Clone, Copy, Debug)]
pub struct Deadline;

impl JobOrder for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn rank(&self, job: &Job, world: &LoanWorld<'_>) -> Rank {
        // One that cannot be kept any more has no claim on those that can.
        let hopeful = |deadline: &Moment| {
            job.remaining().is_none_or(|remaining| world.now + remaining <= *deadline)
        };
        match job.ask.deadline.filter(hopeful) {
            Some(deadline) => Rank::band(deadline.micros() as f64 / Moment::NEVER.micros() as f64),
            None => Rank::band(BEST_EFFORT + queue(job.counted())),
        }
    }
}

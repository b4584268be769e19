//! Least attained service first: nothing need be known of a job's length.

use super::{JobOrder, Rank, queue};
use crate::loan::{Class, Job, LoanWorld};

/// Progress per GPU-second that is worth as much as a whole queue.
const FAST: f64 = 1.0 / 3250.0;

/// Discretised two-dimensional attained service, as Tiresias does: a few queues by GPU-seconds.
///
/// Within a queue those whose owners say that they are short go first, then order is by submission.
#[derive(Clone, Copy, Debug)]
pub struct Las;

impl JobOrder for Las {
    fn name(&self) -> &'static str {
        "las"
    }

    fn rank(&self, job: &Job, _: &LoanWorld<'_>) -> Rank {
        let within = f64::from(Class::of(job.ask.takes) as u8);
        Rank { band: queue(job.counted()), within }
    }
}

/// Attained service and the rate of progress, as E-LAS does.
///
/// In each queue those that gain most per GPU-second go first, and one that is nearly done is put
/// where its remaining service would have it.
#[derive(Clone, Copy, Debug)]
pub struct Elas;

impl JobOrder for Elas {
    fn name(&self) -> &'static str {
        "elas"
    }

    fn rank(&self, job: &Job, _: &LoanWorld<'_>) -> Rank {
        let service = job.counted();
        let Some(done) = job.progress.filter(|done| *done > 0.0 && job.attained > 0.0) else {
            return Rank::band(queue(service));
        };
        let rate = done / job.attained;
        let remaining = (1.0 - done).max(0.0) / rate;
        Rank { band: queue(service.min(remaining)), within: -(rate / FAST) }
    }
}

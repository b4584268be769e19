//! Idle slices lent to training jobs, and taken back before inference needs them.
//!
//! Values in, values out: the slices and who holds them, the jobs, the tenants, and what inference
//! will need; [`decide`] answers with what to start, resize and stop, and with why each of the
//! others waits. Nothing is remembered between two calls: a job that was promised slices which are
//! still being given back is promised them again, because it is still first in the order.

mod admit;
mod fair_shares;
mod fit;
mod free_slices;
mod grow;
mod job;
mod lend;
pub mod order;
mod preemption;
mod reasons;
mod reclaim;
mod reserve;
mod schedule;
mod share;
mod speed;
mod throttle;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::moment::Moment;

pub use self::{
    admit::{Admitted, Offer, Refused, admit},
    job::{Ask, Class, Job, JobId, Phase, has_room},
    lend::Loaning,
    order::{History, JobOrder},
    reasons::{Start, Stop, Wait, Why},
    reclaim::{begin_by, work_lost},
    share::{Account, Use, accrue},
    speed::{SCALING_OVERHEAD, TRAINING_SPEED, gang_speed, slice_speed},
    throttle::{Duty, Pace},
};

use self::free_slices::Desk;

/// A slice that could be lent, or is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    pub host: u32,
    /// The GPU it is a part of, numbered over all machines.
    pub gpu: u32,
    pub compute: u8,
    /// Its part of the GPU. More than 0, at most 1.
    pub share: f64,
    /// How fast training runs on it, against a whole GPU.
    pub speed: f64,
    pub memory_mib: u64,
    /// Whether it is cores of a machine, not a part of a GPU.
    pub cores: bool,
    pub held: Held,
}

/// Who has a slice. One answer, so that none has two owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Free,
    /// Inference, which may not be disturbed.
    Inference,
    Lent(JobId),
    Leaving {
        by: Moment,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tenant {
    /// Weight against others. More than 0.
    pub share: f64,
    pub quota: u32,
    /// What it has had and deserved so far.
    pub account: Account,
}

/// What inference may need of the slices it does not hold, in compute slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The upper quantile of the forecast, less what inference holds.
    pub forecast: u32,
    /// What the failure of one GPU would take away.
    pub reserve: u32,
    pub by: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub slices: Vec<usize>,
    pub count: u32,
    /// When: what follows (reshaping, loading) begins then.
    pub by: Moment,
}

#[derive(Clone, Copy, Debug)]
pub struct LoanWorld<'a> {
    pub now: Moment,
    /// Every slice that inference does not exclude from lending; decisions name them by index.
    pub slices: &'a [Slice],
    pub jobs: &'a [Job],
    pub tenants: &'a [Tenant],
    pub keep: Keep,
    pub wanted: &'a [Wanted],
    pub history: &'a History,
}

#[derive(Debug)]
pub struct Rules {
    pub order: Box<dyn JobOrder>,
    /// Whether the tenant that had least of what it deserves goes first, before the order.
    pub fair_tenants: bool,
    /// How much is lent and who gives it back.
    pub loaning: Loaning,
    /// How long a loan lasts unless renewed, and the least a job is left alone by other jobs.
    pub lease: Duration,
    /// Time between the call to stop and the kill.
    pub notice: Duration,
    /// What stopping and starting again costs a job.
    pub restart: Duration,
    /// A job that waited this long goes before all others, if it also waited eight times as long
    /// as it ran.
    pub patience: Duration,
    /// The most work that is counted as lost for a job that reports no checkpoint.
    pub max_loan: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            order: Box::new(order::Las),
            fair_tenants: true,
            loaning: Loaning::Sluice,
            lease: Duration::from_secs(60),
            notice: Duration::from_secs(10),
            restart: Duration::from_secs(30),
            patience: Duration::from_secs(6 * 3600),
            max_loan: Duration::from_secs(3600),
        }
    }
}

impl Rules {
    /// Whether tenants are kept even before the order decides.
    fn divides_by_tenant(&self) -> bool {
        self.fair_tenants || self.order.fair_tenants()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Start a waiting job, all its ranks at once.
    Start {
        job: JobId,
        /// One rank on each, in this order.
        slices: Vec<usize>,
        lease_until: Moment,
        why: Start,
    },
    Renew {
        job: JobId,
        lease_until: Moment,
    },
    Grow {
        job: JobId,
        slices: Vec<usize>,
    },
    /// Have a running job give some slices back.
    Shrink {
        job: JobId,
        slices: Vec<usize>,
        by: Moment,
        why: Stop,
    },
    /// Have a running job checkpoint, stop and wait again.
    Stop {
        job: JobId,
        by: Moment,
        why: Stop,
    },
}

impl Act {
    pub fn job(&self) -> JobId {
        match self {
            Self::Start { job, .. }
            | Self::Renew { job, .. }
            | Self::Grow { job, .. }
            | Self::Shrink { job, .. }
            | Self::Stop { job, .. } => *job,
        }
    }
}

/// What to do, and why nothing is done for the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    pub acts: Vec<Act>,
    /// Every waiting job that does not start, in its order.
    pub waits: Vec<Wait>,
}

pub fn decide(world: &LoanWorld<'_>, rules: &Rules) -> Decisions {
    let mut desk = Desk::new(world, rules);
    reclaim::run(&mut desk);
    let head = schedule::run(&mut desk);
    grow::run(&mut desk, head.as_ref());
    desk.renew();
    desk.decisions
}

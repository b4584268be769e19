//! Who goes first: the named orders, behind one interface.
//!
//! `las` is the default. The others restate published schedulers closely enough to be compared with
//! it on the same jobs, and can be chosen in the configuration.

mod attained;
mod deficit;
mod fifo;
mod gittins;
mod told_length;

use std::{cmp::Ordering, fmt};

use super::{Job, LoanWorld};
use crate::moment::Moment;

pub use self::{
    attained::{Elas, Las},
    deficit::{Ftf, Ltgf},
    fifo::{Backfill, Fifo},
    gittins::{Gittins, History},
    told_length::{Deadline, Srtf},
};

/// An order by which jobs get slices.
pub trait Order: fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;

    fn rank(&self, job: &Job, world: &LoanWorld<'_>) -> Rank;

    /// Whether a running job is stopped for one of a better band.
    fn preempts(&self) -> bool {
        true
    }

    /// Whether jobs may start before one that waits, if that does not delay it.
    fn backfills(&self) -> bool {
        true
    }

    /// Whether the tenant that had least goes first whatever the rules say.
    fn fair_tenants(&self) -> bool {
        false
    }
}

/// A job's place; the smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rank {
    /// Only a smaller band is worth stopping another job for.
    pub band: f64,
    /// The order within a band, before that of submission. It should not turn round while one of
    /// two jobs runs, or they take turns.
    pub within: f64,
}

impl Rank {
    /// A place in `band`, where order is by submission.
    fn band(band: f64) -> Self {
        Self { band, within: 0.0 }
    }
}

/// The order of that name, if there is one.
pub fn named(name: &str) -> Option<Box<dyn Order>> {
    all().into_iter().find(|order| order.name() == name)
}

/// Every order, the default first.
pub fn all() -> Vec<Box<dyn Order>> {
    vec![
        Box::new(Las),
        Box::new(Fifo),
        Box::new(Backfill),
        Box::new(Srtf),
        Box::new(Gittins),
        Box::new(Elas),
        Box::new(Ltgf),
        Box::new(Ftf),
        Box::new(Deadline),
    ]
}

/// A job's place among all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// Since when it waits, if it has waited too long, which comes before everything.
    starving: Option<Moment>,
    /// How much its tenant has had of what it deserves, in steps.
    tenant: f64,
    rank: Rank,
    submitted: u64,
    id: u64,
}

/// What of its deserved GPU time a tenant must have had less than another's to go first.
const TENANT_STEP: f64 = 0.05;

impl Place {
    pub(super) fn of(job: &Job, world: &LoanWorld<'_>, rules: &super::Rules) -> Self {
        let tenant = world.tenants.get(job.ask.tenant).filter(|_| rules.divides_by_tenant());
        let ran = job.ran.as_secs_f64();
        let starving = job.waited(world.now).filter(|waited| {
            let enough = PATIENCE_OVER_RUN * ran.min(MOST_RUN_S);
            *waited >= rules.patience && waited.as_secs_f64() >= enough
        });
        Self {
            starving: starving.filter(|_| rules.order.preempts()).map(|waited| world.now - waited),
            tenant: tenant.map_or(0.0, |tenant| (tenant.account.ratio() / TENANT_STEP).floor()),
            rank: rules.order.rank(job, world),
            submitted: job.submitted.micros(),
            id: job.id.0,
        }
    }

    pub(super) fn is_starving(&self) -> bool {
        self.starving.is_some()
    }

    /// Whether its band is better than that of `other`.
    pub(super) fn outranks(&self, other: &Self) -> bool {
        let band = self.rank.band.total_cmp(&other.rank.band);
        other.is_starving().cmp(&self.is_starving()).then(band).is_lt()
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let within = || {
            let rank = self.rank.within.total_cmp(&other.rank.within);
            rank.then(self.submitted.cmp(&other.submitted)).then(self.id.cmp(&other.id))
        };
        let band = self.rank.band.total_cmp(&other.rank.band);
        let starving = match (self.starving, other.starving) {
            (Some(since), Some(other)) => since.cmp(&other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        starving.then(self.tenant.total_cmp(&other.tenant)).then(band).then_with(within)
    }
}

/// A job that ran is starving only once it waited this many times as long, as Tiresias has it.
const PATIENCE_OVER_RUN: f64 = 8.0;
/// Running longer than this does not make a job wait longer.
const MOST_RUN_S: f64 = 6.0 * 3600.0;

/// GPU-seconds at which a job falls into the next queue of discretised 2DAS, as Tiresias has them.
const QUEUE_LIMITS: [f64; 3] = [3250.0, 7200.0, 18000.0];

/// The queue of a job with so much service, from 0.
fn queue(service: f64) -> f64 {
    QUEUE_LIMITS.iter().filter(|limit| service >= **limit).count() as f64
}

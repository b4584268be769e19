//! Whom the tenants' fair shares let make room for whom.

use super::{LoanWorld, Use, free_slices::Desk, share::divide};

const ROUNDING: f64 = 1e-9;

/// What each tenant holds and would hold if all were even, in GPUs.
#[derive(Clone, Debug)]
pub(super) struct FairShares {
    held: Vec<f64>,
    fair: Vec<f64>,
}

impl FairShares {
    /// With `held` slices by job, and `lendable` GPUs to divide.
    pub(super) fn new(world: &LoanWorld<'_>, held: &[Vec<usize>], lendable: f64) -> Self {
        let mut uses = vec![Use::default(); world.tenants.len()];
        let smallest = world.slices.iter().map(|slice| slice.share).fold(1.0, f64::min);
        for (job, slices) in world.jobs.iter().zip(held) {
            let Some(used) = uses.get_mut(job.ask.tenant) else { continue };
            let gpus = gpus(world, slices);
            used.held += gpus;
            used.wants += gpus.max(f64::from(job.ask.least) * smallest);
        }
        let fair = divide(world.tenants, &uses, lendable);
        Self { held: uses.iter().map(|used| used.held).collect(), fair }
    }

    /// A job with `slices` was told to give them back.
    pub(super) fn gave_back(&mut self, world: &LoanWorld<'_>, tenant: usize, slices: &[usize]) {
        if let Some(held) = self.held.get_mut(tenant) {
            *held -= gpus(world, slices);
        }
    }

    pub(super) fn took(&mut self, world: &LoanWorld<'_>, tenant: usize, slices: &[usize]) {
        if let Some(held) = self.held.get_mut(tenant) {
            *held += gpus(world, slices);
        }
    }

    /// Whether both tenants are nearer to their fair shares if `job` makes room for `other`.
    pub(super) fn moves_nearer(&self, desk: &Desk<'_>, job: usize, other: usize) -> bool {
        let (from, to) = (desk.world.jobs[job].ask.tenant, desk.world.jobs[other].ask.tenant);
        let given = gpus(desk.world, &desk.held[job]);
        let room = |tenant: usize| {
            let share = self.fair.get(tenant).zip(self.held.get(tenant));
            share.map_or(0.0, |(fair, held)| fair - held)
        };
        room(from) <= -given + ROUNDING && room(to) >= given - ROUNDING
    }
}

fn gpus(world: &LoanWorld<'_>, slices: &[usize]) -> f64 {
    slices.iter().map(|slice| world.slices[*slice].share).sum()
}

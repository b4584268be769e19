//! What is still to be had while a decision is made.

use std::collections::HashMap;

use super::{
    Act, Decisions, Held, JobId, LoanWorld, Phase, Rules, Stop, fair_shares::FairShares,
    fit::Choice, lend, order::Place,
};
use crate::moment::Moment;

/// The world, what of it has been given away, and the decisions so far.
pub(super) struct Desk<'a> {
    pub(super) world: &'a LoanWorld<'a>,
    pub(super) rules: &'a Rules,
    /// Idle slices that were not given away yet.
    pub(super) free: Vec<usize>,
    /// Slices on their way back that were not given away yet, and when they come.
    pub(super) coming: Vec<(usize, Moment)>,
    /// What each job keeps, by the job's index.
    pub(super) held: Vec<Vec<usize>>,
    pub(super) places: Vec<Place>,
    touched: Vec<bool>,
    crowding: Vec<u32>,
    /// Set once what may be lent is known, where tenants are kept even.
    pub(super) fair_shares: Option<FairShares>,
    pub(super) decisions: Decisions,
}

impl<'a> Desk<'a> {
    pub(super) fn new(world: &'a LoanWorld<'a>, rules: &'a Rules) -> Self {
        let by_id: HashMap<JobId, usize> =
            world.jobs.iter().enumerate().map(|(index, job)| (job.id, index)).collect();
        let mut held = vec![Vec::new(); world.jobs.len()];
        let (mut free, mut coming) = (Vec::new(), Vec::new());
        for (index, slice) in world.slices.iter().enumerate() {
            match slice.held {
                Held::Free => free.push(index),
                Held::Inference => {}
                Held::Leaving { by } => coming.push((index, by)),
                Held::Lent(id) => {
                    if let Some(job) = by_id.get(&id) {
                        held[*job].push(index);
                    }
                }
            }
        }
        Self {
            world,
            rules,
            free,
            coming,
            held,
            places: world.jobs.iter().map(|job| Place::of(job, world, rules)).collect(),
            touched: vec![false; world.jobs.len()],
            crowding: lend::crowding(world.slices),
            fair_shares: None,
            decisions: Decisions::default(),
        }
    }

    pub(super) fn choice(&self) -> Choice<'_> {
        Choice { slices: self.world.slices, crowding: &self.crowding }
    }

    /// Slices that are to be had, idle or on their way back.
    pub(super) fn available(&self) -> Vec<usize> {
        let coming = self.coming.iter().map(|(slice, _)| *slice);
        self.free.iter().copied().chain(coming).collect()
    }

    /// `slices` are for `job`, now or when they have come.
    pub(super) fn give_away(&mut self, job: usize, slices: &[usize]) {
        self.free.retain(|slice| !slices.contains(slice));
        self.coming.retain(|(slice, _)| !slices.contains(slice));
        let tenant = self.world.jobs[job].ask.tenant;
        if let Some(fair_shares) = &mut self.fair_shares {
            fair_shares.took(self.world, tenant, slices);
        }
    }

    /// How many slices inference has on the GPU of this one.
    pub(super) fn crowding(&self, slice: usize) -> u32 {
        self.crowding[slice]
    }

    /// Whether `job` runs, was not told anything yet, and has had its lease since its last change.
    pub(super) fn contestable(&self, job: usize) -> bool {
        self.may_be_told(job) && self.tenure_end(job) <= self.world.now
    }

    /// Whether `job` runs and was not told anything yet.
    pub(super) fn may_be_told(&self, job: usize) -> bool {
        !self.touched[job] && self.runs(job)
    }

    fn runs(&self, job: usize) -> bool {
        match self.world.jobs[job].phase {
            Phase::Running { .. } => true,
            Phase::Waiting { .. } | Phase::Leaving => false,
        }
    }

    pub(super) fn tenure_end(&self, job: usize) -> Moment {
        match self.world.jobs[job].phase {
            Phase::Running { since, .. } => since + self.rules.lease,
            Phase::Waiting { .. } | Phase::Leaving => self.world.now,
        }
    }

    pub(super) fn suited(&self, job: usize, other: usize) -> impl Iterator<Item = usize> + '_ {
        let ask = &self.world.jobs[other].ask;
        let slices = self.world.slices;
        self.held[job].iter().copied().filter(move |index| ask.suits(&slices[*index]))
    }

    /// Works out what each tenant's fair share of all that may be lent is.
    pub(super) fn divide(&mut self) {
        if self.rules.divides_by_tenant() {
            let slices = self.world.slices;
            let idle = self.free.iter().chain(self.coming.iter().map(|(slice, _)| slice));
            let lendable = idle.chain(self.held.iter().flatten());
            let lendable: f64 = lendable.map(|slice| slices[*slice].share).sum();
            self.fair_shares = Some(FairShares::new(self.world, &self.held, lendable));
        }
    }

    fn gave_back(&mut self, job: usize, slices: &[usize]) {
        let tenant = self.world.jobs[job].ask.tenant;
        if let Some(fair_shares) = &mut self.fair_shares {
            fair_shares.gave_back(self.world, tenant, slices);
        }
    }

    pub(super) fn shrink(&mut self, job: usize, slices: Vec<usize>, by: Moment, why: Stop) {
        self.held[job].retain(|slice| !slices.contains(slice));
        self.gave_back(job, &slices);
        self.coming.extend(slices.iter().map(|slice| (*slice, by)));
        self.touched[job] = true;
        let job = self.world.jobs[job].id;
        self.decisions.acts.push(Act::Shrink { job, slices, by, why });
    }

    /// Has `job` stop by `by`; what it was told before in this decision is void.
    pub(super) fn stop(&mut self, job: usize, by: Moment, why: Stop) {
        let slices = std::mem::take(&mut self.held[job]);
        self.gave_back(job, &slices);
        self.coming.extend(slices.iter().map(|slice| (*slice, by)));
        self.touched[job] = true;
        let id = self.world.jobs[job].id;
        let mut soonest = by;
        self.decisions.acts.retain(|act| match act {
            Act::Shrink { job, by, .. } if *job == id => {
                soonest = soonest.min(*by);
                false
            }
            Act::Shrink { .. }
            | Act::Start { .. }
            | Act::Renew { .. }
            | Act::Grow { .. }
            | Act::Stop { .. } => true,
        });
        self.decisions.acts.push(Act::Stop { job: id, by: soonest, why });
    }

    /// Renews the loans of all that stay, when half of their time is over.
    pub(super) fn renew(&mut self) {
        let now = self.world.now;
        for (index, job) in self.world.jobs.iter().enumerate() {
            let Phase::Running { lease_until, .. } = job.phase else { continue };
            let stays = !self.held[index].is_empty();
            if stays && lease_until <= now + self.rules.lease / 2 {
                let lease_until = now + self.rules.lease;
                self.decisions.acts.push(Act::Renew { job: job.id, lease_until });
            }
        }
    }
}

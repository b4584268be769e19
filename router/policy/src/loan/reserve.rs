//! When the job that is first but does not fit can start, and who may go before it until then.

use std::time::Duration;

use super::{JobId, free_slices::Desk};
use crate::moment::Moment;

/// What is kept for the first job that could not start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    job: usize,
    pub(super) id: JobId,
    /// When enough slices should be idle, if that can be known.
    pub(super) at: Option<Moment>,
    /// Slices that suit it and are not needed for it then.
    spare: u32,
}

impl Reservation {
    pub(super) fn new(desk: &Desk<'_>, job: usize) -> Self {
        let ask = &desk.world.jobs[job].ask;
        let suits = |slice: usize| ask.suits(&desk.world.slices[slice]);
        let mut ends: Vec<(Moment, u32)> = Vec::new();
        ends.extend(desk.coming.iter().filter(|(slice, _)| suits(*slice)).map(|(_, by)| (*by, 1)));
        for other in (0..desk.held.len()).filter(|other| !desk.held[*other].is_empty()) {
            let count = u32::try_from(desk.suited(other, job).count()).unwrap_or(u32::MAX);
            if count > 0
                && let Some(end) = expected_end(desk, other, job)
            {
                ends.push((end, count));
            }
        }
        ends.sort_unstable();
        let idle = desk.free.iter().filter(|slice| suits(**slice)).count();
        let mut available = u32::try_from(idle).unwrap_or(u32::MAX);
        let mut at = (available >= ask.least).then_some(desk.world.now);
        for (end, count) in ends {
            if at.is_some_and(|at| end > at) {
                break;
            }
            available += count;
            if available >= ask.least {
                at = Some(end);
            }
        }
        let spare = if at.is_some() { available.saturating_sub(ask.least) } else { 0 };
        Self { job, id: desk.world.jobs[job].id, at, spare }
    }

    /// The idle slices that `other` may have without delaying the one this is for.
    pub(super) fn leaves(&self, desk: &Desk<'_>, other: usize) -> Vec<usize> {
        if self.ends_in_time(desk, other) {
            return desk.free.clone();
        }
        let mut spare = self.spare;
        let mut left = desk.free.clone();
        left.retain(|slice| {
            if !self.suits(desk, *slice) {
                return true;
            }
            let is_spare = spare > 0;
            spare = spare.saturating_sub(1);
            is_spare
        });
        left
    }

    pub(super) fn took(&mut self, desk: &Desk<'_>, other: usize, slices: &[usize]) {
        if !self.ends_in_time(desk, other) {
            let suited = slices.iter().filter(|slice| self.suits(desk, **slice)).count();
            self.spare = self.spare.saturating_sub(u32::try_from(suited).unwrap_or(u32::MAX));
        }
    }

    /// Whether the job this is for could run on `slice`.
    pub(super) fn suits(&self, desk: &Desk<'_>, slice: usize) -> bool {
        desk.world.jobs[self.job].ask.suits(&desk.world.slices[slice])
    }

    fn ends_in_time(&self, desk: &Desk<'_>, other: usize) -> bool {
        let (now, rules) = (desk.world.now, desk.rules);
        let known = desk.world.jobs[other].remaining().map(|remaining| now + remaining);
        // It can be stopped for the one that is first once its lease is over.
        let yields = rules.order.preempts().then_some(now + rules.lease + rules.notice);
        match (self.at, known.into_iter().chain(yields).min()) {
            (Some(at), Some(end)) => end <= at,
            (None, Some(_)) => yields.is_some(),
            (_, None) => false,
        }
    }
}

/// Whether `job` may be stopped for `other` once its lease is over.
///
/// A gang may also stop those of its own band that stand behind it: they started in its way. Where
/// tenants are kept even, a job of another tenant yields only from beyond its fair share to one
/// below its own.
pub(super) fn yields_to(desk: &Desk<'_>, job: usize, other: usize) -> bool {
    let (place, first) = (&desk.places[job], &desk.places[other]);
    let jobs = desk.world.jobs;
    let gang = jobs[other].ask.least > 1;
    desk.rules.order.preempts()
        && match &desk.fair_shares {
            Some(fair_shares) if jobs[job].ask.tenant != jobs[other].ask.tenant => {
                first.is_starving() && !place.is_starving()
                    || fair_shares.moves_nearer(desk, job, other)
            }
            Some(_) | None => first.outranks(place) || gang && first.cmp(place).is_lt(),
        }
}

/// When the slices of `job` should be there for `other`.
fn expected_end(desk: &Desk<'_>, job: usize, other: usize) -> Option<Moment> {
    let now = desk.world.now;
    let ends = desk.world.jobs[job].remaining().map(|left| now + left.max(Duration::from_secs(1)));
    let stopped =
        yields_to(desk, job, other).then(|| desk.tenure_end(job).max(now) + desk.rules.notice);
    ends.into_iter().chain(stopped).min()
}

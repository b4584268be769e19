//! Whether a request will be in time, said the moment it comes.
//!
//! The finish is predicted from the work due before it and the replicas' learned latency. While
//! demand is within capacity, only what waits already counts. When capacity is scarce the batch it
//! joins will fill up, so those expected to join before it starts count too: otherwise requests
//! that came just after a batch left would be let in, hold the next batch small, and cost more than
//! themselves. The count is taken a little low, because letting one in too many costs a late
//! refusal, and one too few an empty place.

use std::time::Duration;

use super::{Dispatch, Effect, QUEUE_BOUND, Refusal};
use crate::{
    moment::Moment,
    queue::{Standing, Waiting},
    replica::Replica,
};

/// Standard deviations of the expected joiners left out.
const LEAN: f64 = 0.5;
/// The share of what can be served without loss that the batch class may bring demand up to.
const LOW_CEILING: f64 = 0.8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    pub(super) finish: Moment,
    pub(super) start: Moment,
}

impl Dispatch {
    /// Lets `waiting` in, perhaps in place of another, or says why not.
    pub(super) fn admit(
        &mut self,
        key: u32,
        waiting: Waiting,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if self.replicas.iter().all(|replica| replica.draining) {
            return Err(Refusal::NoReplica);
        }
        if self.waiting >= QUEUE_BOUND {
            return Err(Refusal::Full { waiting: self.waiting });
        }
        if !self.rule.predicts() {
            return Ok(());
        }
        let scarce = self.is_scarce(now, waiting.standing);
        let low_over_ceiling = waiting.standing == Standing::Low && scarce;
        let prediction = self.predict(key, &waiting, now, scarce);
        let due = waiting.deadline - self.settings.margin;
        if prediction.finish <= due && !low_over_ceiling {
            return Ok(());
        }
        let refusal = Refusal::Overloaded {
            waiting: self.waiting,
            predicted: prediction.finish.since(now),
            retry_after: prediction.start.since(now),
        };
        if waiting.standing == Standing::Low || !self.is_savable(key, &waiting, now) {
            return Err(refusal);
        }
        match self.displace(key, waiting.standing) {
            Some(victim) => {
                effects.push(Effect::Refuse { id: victim.id, why: refusal });
                Ok(())
            }
            None if waiting.standing == Standing::Protected => Ok(()),
            None => Err(refusal),
        }
    }

    /// Whether demand exceeds what can be served with nobody lost.
    ///
    /// Nobody need be lost while a request that just missed a batch can wait for it to end and still
    /// have its own batch: twice the batch's time within the objective.
    pub(super) fn is_scarce(&self, now: Moment, standing: Standing) -> bool {
        let half = (self.settings.objective.saturating_sub(self.settings.margin)) / 2;
        let guard = self.rule.guard();
        let lossless: f64 = self
            .replicas
            .iter()
            .filter(|replica| !replica.draining)
            .map(|replica| {
                let most = replica.limit(guard).min(replica.latency.largest_within(half)).max(1);
                replica.latency.rows_per_second(replica.latency.most_efficient(most))
            })
            .sum();
        let ceiling = match standing {
            Standing::Low => LOW_CEILING,
            Standing::Normal | Standing::Protected => 1.0,
        };
        self.rate.per_second(now) > ceiling * lossless
    }

    /// When `waiting` would finish if it joined `key` now.
    pub(super) fn predict(
        &self,
        key: u32,
        waiting: &Waiting,
        now: Moment,
        scarce: bool,
    ) -> Prediction {
        let Some((replica, mut start)) = self.first_free(now) else {
            return Prediction { finish: Moment::NEVER, start: Moment::NEVER };
        };
        let cap = self.rule.cap(&replica.latency, replica.limit(self.rule.guard()));
        let in_lane = self.rows_ahead(Some(key), waiting);
        let elsewhere = self.rows_ahead(None, waiting) - in_lane;
        let full = in_lane / u64::from(cap) + elsewhere.div_ceil(u64::from(cap));
        let in_rotation = self.replicas.iter().filter(|replica| !replica.draining).count() as u32;
        let each = replica.latency.mean(cap) / in_rotation.max(1);
        start = start + each.saturating_mul(u32::try_from(full).unwrap_or(u32::MAX));

        let beside = (in_lane % u64::from(cap)) as u32 + waiting.rows;
        let joiners = if scarce { self.joiners(now, start) } else { 0 };
        let size = beside.saturating_add(joiners).min(cap.max(beside));
        Prediction { finish: start + replica.latency.high(size), start }
    }

    /// Whether `waiting` would be in time if nobody stood before it.
    fn is_savable(&self, key: u32, waiting: &Waiting, now: Moment) -> bool {
        let protected_ahead = self.lanes.get(key as usize).map_or(0, |lane| {
            let ahead = lane.main.iter().take_while(|entry| entry.deadline <= waiting.deadline);
            ahead
                .filter(|entry| entry.standing >= waiting.standing)
                .map(|entry| entry.rows)
                .fold(0, u32::saturating_add)
        });
        self.first_free(now).is_some_and(|(replica, start)| {
            let size = protected_ahead.saturating_add(waiting.rows);
            let due = waiting.deadline - self.settings.margin;
            size <= replica.latency.max() && start + replica.latency.high(size) <= due
        })
    }

    /// Takes out the last waiting request of lower standing than `standing`, if there is one.
    fn displace(&mut self, key: u32, standing: Standing) -> Option<Waiting> {
        let lane = self.lanes.get_mut(key as usize)?;
        let victim = match lane.low.len() {
            0 => {
                let place = lane.main.iter().rposition(|entry| entry.standing < standing)?;
                lane.main.remove_at(place)
            }
            low => lane.low.remove_at(low - 1),
        };
        self.waiting -= usize::from(victim.is_some());
        victim
    }

    fn joiners(&self, now: Moment, start: Moment) -> u32 {
        let expected = self.rate.per_second(now) * start.since(now).as_secs_f64();
        (expected - LEAN * expected.sqrt()).max(0.0) as u32
    }

    fn rows_ahead(&self, key: Option<u32>, waiting: &Waiting) -> u64 {
        let counts = |index: usize| key.is_none_or(|key| key as usize == index);
        self.lanes
            .iter()
            .enumerate()
            .filter(|(index, lane)| counts(*index) && !lane.is_empty())
            .map(|(_, lane)| match waiting.standing {
                Standing::Low => lane.main.rows() + lane.low.rows_due_by(waiting.deadline),
                Standing::Normal | Standing::Protected => lane.main.rows_due_by(waiting.deadline),
            })
            .sum()
    }

    /// The replica in rotation that could start a batch first, and when.
    pub(super) fn first_free(&self, now: Moment) -> Option<(&Replica, Moment)> {
        self.replicas
            .iter()
            .filter(|replica| !replica.draining)
            .map(|replica| {
                let reopens = replica.breaker.reopens_at().unwrap_or_default();
                (replica, replica.free_at(now).max(reopens))
            })
            .min_by_key(|(_, free_at)| *free_at)
    }

    /// Time from `now` until a replica is free.
    pub(super) fn until_free(&self, now: Moment) -> Duration {
        self.first_free(now).map_or(Duration::ZERO, |(_, free_at)| free_at.since(now))
    }
}

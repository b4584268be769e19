//! Whether a request will be in time, said the moment it comes.
//!
//! The finish is predicted from the work due before it and the replicas' learned latency. While
//! demand is within capacity only what waits already counts, and the expected time decides: a wrong
//! refusal costs more than a wrong hope. When capacity is scarce the batch it joins will fill up, so
//! it must be young enough for a batch of the planned size: otherwise requests that came just after
//! a batch left would be let in, hold the next batch small, and cost more than themselves. Where the
//! end of the running batch is uncertain it is taken early, and the batch chosen when it has come:
//! one let in too many costs a later refusal, and one too few an empty place.

use std::time::Duration;

use super::{Dispatch, Effect, QUEUE_BOUND, Refusal, revoke};
use crate::{
    moment::Moment,
    queue::{Standing, Waiting},
    rate::Kind,
    replica::Replica,
    scarcity,
};

/// The share of what can be served without loss that the batch class may bring demand up to.
const LOW_CEILING: f64 = 0.8;
/// How long a replica stands idle, with requests refused, before its slowness is doubted.
const SILENCE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
struct Prediction {
    start: Moment,
    finish: Moment,
    in_time: bool,
}

impl Dispatch {
    /// Lets `waiting` in, perhaps in place of others, or says why not.
    pub(super) fn admit(
        &mut self,
        key: usize,
        waiting: &Waiting,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        if self.replicas.iter().all(|replica| replica.draining) {
            return Err(Refusal::NoReplica);
        }
        let count = self.lanes.len();
        if count >= QUEUE_BOUND {
            return Err(Refusal::Full { waiting: count });
        }
        if !self.rule.predicts() {
            return Ok(());
        }
        let scarce = self.is_scarce(now);
        let beyond_share =
            scarce && waiting.standing == Standing::Normal && self.shares.is_beyond(waiting.tenant);
        if waiting.standing != Standing::Low && !beyond_share {
            self.demand.add(Kind::Open, waiting.rows, now);
        }
        let prediction = self.predict(key, waiting, now, scarce);
        let in_time = prediction.in_time;
        let welcome = match waiting.standing {
            Standing::Low => in_time && self.has_room_for_low(now),
            Standing::Normal => in_time && !beyond_share,
            Standing::Protected => in_time || self.make_way(key, waiting, now, effects),
        };
        if welcome {
            return Ok(());
        }
        self.doubt_idle(now);
        Err(Refusal::Overloaded {
            waiting: count,
            predicted: prediction.finish.since(now),
            retry_after: prediction.start.since(now),
        })
    }

    /// Doubts the slowness of replicas that stand idle while requests are refused.
    fn doubt_idle(&mut self, now: Moment) {
        for index in 0..self.replicas.len() {
            let replica = &mut self.replicas[index];
            let idle = replica.running.is_none() && replica.is_working(now);
            if idle && now.since(replica.heard_at) >= SILENCE {
                replica.latency.doubt();
                replica.heard_at = now;
                self.appraise(index, now);
            }
        }
    }

    /// Works out anew what a replica can serve, and whom it should if that is too little.
    pub(super) fn appraise(&mut self, index: usize, now: Moment) {
        let allowed = self.allowed();
        self.replicas[index].appraise(allowed, self.rule.guard());
        if self.rule.predicts() && self.is_scarce(now) {
            let rate = self.demand.per_second(Kind::Open, now);
            let replica = &self.replicas[index];
            let plan = scarcity::plan(&replica.latency, self.cap(replica), rate, allowed);
            self.replicas[index].plan = plan;
        }
    }

    /// Whether demand exceeds what can be served with nobody lost.
    pub(super) fn is_scarce(&self, now: Moment) -> bool {
        self.demand.per_second(Kind::Main, now) > self.lossless(now)
    }

    fn has_room_for_low(&self, now: Moment) -> bool {
        let demand =
            self.demand.per_second(Kind::Main, now) + self.demand.per_second(Kind::Low, now);
        demand <= LOW_CEILING * self.lossless(now)
    }

    /// Rows per second that can be served with nobody lost.
    pub(super) fn lossless(&self, now: Moment) -> f64 {
        let working = self.replicas.iter().filter(|replica| replica.is_working(now));
        working.map(|replica| replica.lossless_rate).sum()
    }

    /// When `waiting` would start and finish if it joined `key` now, and whether that is in time.
    fn predict(&self, key: usize, waiting: &Waiting, now: Moment, scarce: bool) -> Prediction {
        let Some((replica, free_at)) = self.soonest(waiting.rows, now) else {
            return Prediction { start: Moment::NEVER, finish: Moment::NEVER, in_time: false };
        };
        let (latency, plan) = (&replica.latency, replica.plan);
        let due = waiting.deadline - self.settings.margin;
        let cap = self.cap(replica);
        let passed_over = scarce.then(|| free_at + plan.needs + self.settings.margin);
        let (ahead, beside) = self.work_before(key, waiting, cap, passed_over);
        let start = if ahead == 0 { free_at } else { self.start_after(ahead, cap, now) };
        let rows = beside.saturating_add(waiting.rows);
        let finish = start + latency.mean(rows);
        let in_time = if scarce {
            let early = start - latency.mean(cap).mul_f64(latency.noise());
            let needs = plan.needs.max(latency.mean(waiting.rows));
            // A queue of those beyond their share would stand before those below theirs.
            let next = ahead == 0 || !self.shares.guards();
            next && early.max(now) + needs <= due
        } else {
            finish <= due
        };
        Prediction { start, finish, in_time }
    }

    /// Batches before the one that `waiting` would join, and rows before it in that one.
    ///
    /// Those due by `passed_over` will not be served, and stand in nobody's way.
    fn work_before(
        &self,
        key: usize,
        waiting: &Waiting,
        cap: u32,
        passed_over: Option<Moment>,
    ) -> (u64, u32) {
        let (mut ahead, mut beside) = (0, 0);
        for (index, lane) in self.lanes.iter() {
            let lost = passed_over.map_or(0, |deadline| lane.main.rows_due_by(deadline));
            let rows = match waiting.standing {
                Standing::Low => lane.main.rows() + lane.low.rows_due_by(waiting.deadline),
                Standing::Normal | Standing::Protected => lane.main.rows_due_by(waiting.deadline),
            };
            let rows = rows.saturating_sub(lost);
            if index == key {
                ahead += rows / u64::from(cap);
                beside = (rows % u64::from(cap)) as u32;
            } else {
                ahead += rows.div_ceil(u64::from(cap));
            }
        }
        (ahead, beside)
    }

    /// When a batch could start that has `ahead` batches of `cap` rows before it.
    fn start_after(&self, ahead: u64, cap: u32, now: Moment) -> Moment {
        let mut free: Vec<(Moment, Duration)> = self
            .replicas
            .iter()
            .filter(|replica| !replica.draining)
            .map(|replica| (replica.free_at(now), replica.latency.mean(cap)))
            .collect();
        let per_second: f64 = free.iter().map(|(_, took)| 1.0 / took.as_secs_f64()).sum();
        // All but the last few are spread evenly; those are given out one by one.
        let spread = ahead - ahead % free.len() as u64;
        let delay = Duration::from_secs_f64(spread as f64 / per_second);
        for _ in spread..ahead {
            if let Some(first) = free.iter_mut().min_by_key(|(at, _)| *at) {
                first.0 = first.0 + first.1;
            }
        }
        free.iter().map(|(at, _)| *at).min().unwrap_or(Moment::NEVER) + delay
    }

    /// Takes out those of lower standing in whose place `waiting` would be saved, if it would.
    fn make_way(
        &mut self,
        key: usize,
        waiting: &Waiting,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some((replica, free_at)) = self.soonest(waiting.rows, now) else { return false };
        let line = self.lanes.get(key).map(|lane| &lane.main);
        let ahead = line.map_or(0, |line| line.due_by(waiting.deadline));
        let equals = line.into_iter().flat_map(|line| line.iter().take(ahead));
        let stay: u64 = equals
            .filter(|entry| entry.standing >= waiting.standing)
            .map(|entry| u64::from(entry.rows))
            .sum();
        let cap = self.cap(replica);
        let (batches, beside) = (stay / u64::from(cap), (stay % u64::from(cap)) as u32);
        let start = if batches == 0 { free_at } else { self.start_after(batches, cap, now) };
        let finish = start + replica.latency.high(beside + waiting.rows);
        if finish > waiting.deadline - self.settings.margin {
            return false;
        }
        let why = Refusal::Overloaded {
            waiting: self.lanes.len(),
            predicted: finish.since(now),
            retry_after: start.since(now),
        };
        let Some(lane) = self.lanes.get_mut(key) else { return true };
        let mut room = 0;
        for place in (0..ahead).rev() {
            if room >= waiting.rows {
                break;
            }
            if lane.main.get(place).is_some_and(|entry| entry.standing < waiting.standing)
                && let Some(victim) = lane.main.remove_at(place)
            {
                room += victim.rows;
                let id = revoke(&mut self.shares, &victim);
                effects.push(Effect::Refuse { id, why });
            }
        }
        true
    }

    /// The most rows worth sending to `replica` at once.
    pub(super) fn cap(&self, replica: &Replica) -> u32 {
        self.rule.cap(&replica.latency, self.limit(replica))
    }

    /// The most rows that may be sent to `replica` at once.
    ///
    /// While somebody is protected, no more than lets one who just missed a batch have the next.
    pub(super) fn limit(&self, replica: &Replica) -> u32 {
        let limit = replica.limit(self.rule.guard());
        if self.rule.predicts() && self.shares.guards() {
            limit.min(replica.lossless_rows)
        } else {
            limit
        }
    }

    /// The replica in rotation that would finish a batch of `rows` first, and when it could start.
    pub(super) fn soonest(&self, rows: u32, now: Moment) -> Option<(&Replica, Moment)> {
        let in_rotation = self.replicas.iter().filter(|replica| !replica.draining);
        in_rotation
            .map(|replica| (replica, replica.free_at(now)))
            .min_by_key(|(replica, start)| *start + replica.latency.mean(rows))
    }

    /// When that batch would be done.
    pub(super) fn soonest_finish(&self, rows: u32, now: Moment) -> Option<Moment> {
        self.soonest(rows, now).map(|(replica, start)| start + replica.latency.mean(rows))
    }
}

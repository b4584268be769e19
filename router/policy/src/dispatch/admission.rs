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

use super::{Dispatch, Effect, QUEUE_BOUND, Refusal, forming::is_too_short, replica::Replica};
use crate::{
    latency::Latency,
    moment::Moment,
    queue::{Priority, Queue, Waiting},
    rate::Kind,
    scarcity,
};

/// The share of what can be served without loss that the batch class may bring demand up to.
const LOW_CEILING: f64 = 0.8;
/// How long a replica stands idle, with requests refused, before its slowness is doubted.
const SILENCE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
struct Prediction {
    start: Moment,
    /// With the time kept back.
    finish: Moment,
    /// The earliest moment it would be in time for; none if for no moment.
    keeps: Option<Moment>,
}

impl Prediction {
    fn is_in_time(&self, waiting: &Waiting) -> bool {
        self.keeps.is_some_and(|keeps| keeps <= waiting.by())
    }
}

/// Batches to be served first, and rows that share the one after them.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    batches: u64,
    takes: Duration,
    beside: u32,
}

impl Work {
    fn add(&mut self, batches: u64, rows: u64, latency: &Latency) {
        if batches > 0 {
            self.batches += batches;
            let rows = u32::try_from(rows).unwrap_or(u32::MAX);
            let count = u32::try_from(batches).unwrap_or(u32::MAX);
            self.takes = self.takes.saturating_add(latency.mean(rows).saturating_mul(count));
        }
    }

    /// The time of each of the batches, on average; none if there are none.
    fn each(&self) -> Option<Duration> {
        let batches = u32::try_from(self.batches).unwrap_or(u32::MAX);
        (batches > 0).then(|| self.takes / batches)
    }
}

impl Dispatch {
    /// Lets `waiting` in, perhaps in place of others, as what it is or as late; or says why not.
    pub(super) fn admit(
        &mut self,
        key: usize,
        waiting: &Waiting,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> Result<Priority, Refusal> {
        if self.replicas.iter().all(|replica| replica.draining) {
            return Err(Refusal::NoReplica);
        }
        let count = self.queues.len();
        if count >= QUEUE_BOUND && self.drop_late(effects).is_none() {
            return Err(Refusal::Full { waiting: count });
        }
        if !self.rule.predicts() {
            return Ok(waiting.priority);
        }
        let scarce = self.is_scarce(now);
        let beyond_share =
            scarce && waiting.priority == Priority::Normal && self.shares.is_beyond(waiting.tenant);
        if waiting.priority != Priority::Low && !beyond_share {
            self.demand.add(Kind::Open, waiting.rows, now);
        }
        // To those who are protected it is not: others make way.
        let protected = waiting.priority == Priority::Protected;
        let prediction = self.predict(key, waiting, now, scarce && !protected);
        // Of what nobody measured one is tried, or nobody ever would be.
        let in_time = prediction.is_in_time(waiting) || self.is_to_be_tried(key, waiting.rows, now);
        let welcome = match waiting.priority {
            Priority::Late => false,
            Priority::Low => in_time && self.has_room_for_low(now),
            Priority::Normal => in_time && !beyond_share,
            Priority::Protected => in_time,
        };
        if welcome {
            if scarce && protected {
                self.make_way(key, waiting, now, effects);
            }
            return Ok(waiting.priority);
        }
        self.doubt_idle(now);
        let predicted = prediction.finish.since(now);
        if !in_time && prediction.keeps.is_some_and(|keeps| is_too_short(waiting, keeps)) {
            return Err(Refusal::TooShort { predicted });
        }
        if let Some(late) = waiting.made_late()
            && self.predict(key, &late, now, false).is_in_time(&late)
        {
            return Ok(Priority::Late);
        }
        let retry_after = prediction.start.since(now);
        Err(Refusal::Overloaded { waiting: count, predicted, retry_after })
    }

    /// Whether nothing is known of `key` where it would be served, and no other is on its way to tell.
    fn is_to_be_tried(&self, key: usize, rows: u32, now: Moment) -> bool {
        let Some((replica, _)) = self.soonest(key, rows, now) else { return false };
        if replica.latency(key).is_known() {
            return false;
        }
        let waits = self.queues.get(key).is_some_and(|queue| !queue.is_empty());
        let mut flights = self.replicas.iter().flat_map(Replica::flights);
        !waits && flights.all(|flight| flight.key != key)
    }

    /// Doubts the slowness of replicas that stand idle while requests are refused.
    fn doubt_idle(&mut self, now: Moment) {
        for index in 0..self.replicas.len() {
            let replica = &mut self.replicas[index];
            let idle = replica.running.is_none() && replica.is_working(now);
            if idle && now.since(replica.heard_at) >= SILENCE {
                replica.curves.each_mut().for_each(Latency::doubt);
                replica.heard_at = now;
                self.appraise(index, now);
            }
        }
    }

    /// Works out anew what a replica can serve, and whom it should if that is too little.
    pub(super) fn appraise(&mut self, index: usize, now: Moment) {
        let allowed = self.allowed();
        // Each shape has its turn, and the replicas take turns.
        let late_only = |queue: &Queue| !queue.late.is_empty() && !queue.has_timely();
        let shapes = self.queues.iter().filter(|(_, queue)| !late_only(queue)).count();
        let shapes = shapes.max(1) as f64;
        let turns = shapes / self.in_rotation().count().max(1) as f64;
        self.replicas[index].appraise(allowed, turns, self.rule.guard());
        if self.rule.predicts() && self.is_scarce(now) {
            // Each shape fills its own batches.
            let rate = self.demand.per_second(Kind::Open, now) / shapes;
            let replica = &self.replicas[index];
            let latency = replica.curves.last();
            let cap = self.rule.cap(latency, self.limit_by(replica, replica.lossless_rows));
            let plan = scarcity::plan(latency, cap, rate, allowed);
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
        let Some((replica, free_at)) = self.soonest(key, waiting.rows, now) else {
            return Prediction { start: Moment::NEVER, finish: Moment::NEVER, keeps: None };
        };
        let (latency, plan) = (replica.latency(key), replica.plan);
        let margin = self.settings.margin;
        let passed_over = scarce.then(|| free_at + plan.needs + margin);
        let work = self.work_before(key, waiting, replica, passed_over);
        let start = match work.each() {
            None => free_at,
            Some(each) => self.start_after(key, replica, (work.batches, each), now),
        };
        let finish = start + latency.mean(work.beside.saturating_add(waiting.rows)) + margin;
        let keeps = if scarce {
            let early = start - latency.mean(self.cap(replica, key)).mul_f64(latency.noise());
            let needs = plan.needs.max(latency.mean(waiting.rows));
            // A queue of those beyond their share would stand before those below theirs.
            let next = work.batches == 0 || !self.shares.guards();
            next.then(|| early.max(now) + needs + margin)
        } else {
            Some(finish)
        };
        Prediction { start, finish, keeps }
    }

    /// What stands before `waiting` if it joins `key`.
    ///
    /// Those due by `passed_over` will not be served, and stand in nobody's way.
    fn work_before(
        &self,
        key: usize,
        waiting: &Waiting,
        replica: &Replica,
        passed_over: Option<Moment>,
    ) -> Work {
        let own_cap = u64::from(self.cap(replica, key));
        let mut work = Work::default();
        for (index, queue) in self.queues.iter() {
            let lost = passed_over.map_or(0, |deadline| queue.main.rows_due_by(deadline));
            let (due, all) = match waiting.priority {
                Priority::Late => {
                    let others = queue.interactive_rows() + queue.low.rows();
                    let rows = others + queue.late.rows_due_by(waiting.by());
                    (rows, rows)
                }
                Priority::Low => {
                    let rows = queue.interactive_rows() + queue.low.rows_due_by(waiting.by());
                    (rows, rows)
                }
                Priority::Normal => {
                    let due = queue.main.rows_due_by(waiting.by());
                    (queue.protected.rows() + due, queue.interactive_rows())
                }
                Priority::Protected => {
                    (queue.protected.rows_due_by(waiting.by()), queue.interactive_rows())
                }
            };
            let due = due.saturating_sub(lost);
            let latency = replica.latency(index);
            let cap = if index == key || replica.curves.is_single() {
                own_cap
            } else {
                u64::from(self.cap(replica, index))
            };
            if index == key {
                work.add(due / cap, cap, latency);
                work.beside = (due % cap) as u32;
            } else if due > 0 && passed_over.is_none() {
                // Who is due later goes along in the batch of one who is due before.
                let rows = due.max(all.saturating_sub(lost).min(cap));
                work.add(rows / cap, cap, latency);
                work.add(u64::from(rows % cap > 0), rows % cap, latency);
            }
        }
        work
    }

    /// When a batch could start that has `batches` before it, each of which takes `replica` `each`.
    fn start_after(
        &self,
        key: usize,
        replica: &Replica,
        (batches, each): (u64, Duration),
        now: Moment,
    ) -> Moment {
        let usual = replica.latency(key).mean(1).as_secs_f64();
        let mut free: Vec<(Moment, Duration)> = self
            .in_rotation()
            .map(|other| {
                let slower = other.latency(key).mean(1).as_secs_f64() / usual;
                (other.free_at(now), each.mul_f64(slower))
            })
            .collect();
        let per_second: f64 = free.iter().map(|(_, took)| 1.0 / took.as_secs_f64()).sum();
        // All but the last few are spread evenly; those are given out one by one.
        let spread = batches - batches % free.len() as u64;
        let delay = Duration::from_secs_f64(spread as f64 / per_second);
        for _ in spread..batches {
            if let Some(first) = free.iter_mut().min_by_key(|(at, _)| *at) {
                first.0 = first.0 + first.1;
            }
        }
        free.iter().map(|(at, _)| *at).min().unwrap_or(Moment::NEVER) + delay
    }

    /// Takes out others due before `waiting`, the last first, as far as they have its room in the batch.
    fn make_way(&mut self, key: usize, waiting: &Waiting, now: Moment, effects: &mut Vec<Effect>) {
        let Some((replica, start)) = self.soonest(key, waiting.rows, now) else { return };
        let cap = self.cap(replica, key);
        let takes = replica.latency(key).mean(cap);
        let count = self.queues.len();
        let Some(queue) = self.queues.get_mut(key) else { return };
        let due = waiting.by();
        let mut victims = Vec::new();
        let retry_after = start.since(now);
        let done_at = start + takes + takes;
        let ahead = queue.protected.rows_due_by(due) + queue.main.rows_due_by(due);
        let rows = u64::from(waiting.rows);
        let mut excess = (ahead + rows).saturating_sub(u64::from(cap)).min(rows);
        let mut place = queue.main.due_by(due);
        while excess > 0 && place > 0 {
            place -= 1;
            let Some(victim) = queue.main.remove_at(place) else { break };
            excess = excess.saturating_sub(u64::from(victim.rows));
            victims.push(victim);
        }
        for victim in victims {
            let predicted = done_at.since(victim.arrived);
            let why = Refusal::Overloaded { waiting: count, predicted, retry_after };
            self.turn_away(key, victim, why, effects);
        }
    }

    /// The most rows of `key` worth sending to `replica` at once.
    pub(super) fn cap(&self, replica: &Replica, key: usize) -> u32 {
        self.rule.cap(replica.latency(key), self.limit(replica, key))
    }

    /// The most rows of `key` that may be sent to `replica` at once.
    ///
    /// While somebody is protected, no more than lets one who just missed a batch have the next.
    pub(super) fn limit(&self, replica: &Replica, key: usize) -> u32 {
        if replica.curves.is_single() {
            return self.limit_by(replica, replica.lossless_rows);
        }
        let lossless = replica.latency(key).largest_within(self.allowed() / 2).max(1);
        self.limit_by(replica, lossless)
    }

    fn limit_by(&self, replica: &Replica, lossless_rows: u32) -> u32 {
        let limit = replica.limit(self.rule.guard());
        if self.rule.predicts() && self.shares.guards() { limit.min(lossless_rows) } else { limit }
    }

    /// The replica in rotation that would finish a batch of `rows` of `key` first, and when it could start.
    pub(super) fn soonest(&self, key: usize, rows: u32, now: Moment) -> Option<(&Replica, Moment)> {
        self.in_rotation()
            .map(|replica| (replica, replica.free_at(now)))
            .min_by_key(|(replica, start)| *start + replica.latency(key).mean(rows))
    }

    /// When that batch would be done if it went well.
    pub(super) fn soonest_finish(&self, key: usize, rows: u32, now: Moment) -> Option<Moment> {
        self.soonest(key, rows, now).map(|(replica, start)| start + replica.latency(key).low(rows))
    }
}

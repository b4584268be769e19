//! The whole life of one model's requests, as a machine without a clock.
//!
//! Events go in with the time they happened; [`Effect`]s come out for the caller to carry out, and
//! [`Dispatch::wakes_at`] says when to call again if nothing happens. Every request handed to
//! [`Dispatch::arrive`] leaves by exactly one way: refused there, refused or failed by an effect,
//! withdrawn by [`Dispatch::cancel`], or answered by the caller when its batch finishes.

mod admission;
mod curves;
mod event;
mod filling;
mod forming;
mod late;
mod replica;
mod settling;
mod stalling;
mod turns;

use std::time::Duration;

pub use self::event::{
    Arrival, Batch, BatchLimit, Class, ClosedBy, Effect, Ended, Learned, LimitedBy, Refusal,
    Settings,
};
pub use self::turns::longest_turn;
use self::{curves::Shape, replica::Replica};
pub use crate::queue::Until;
use crate::{
    fair::Shares,
    moment::Moment,
    queue::{Priority, Queues, Waiting},
    rate::{ArrivalRate, Kind},
    rule::Rule,
};

/// The most requests that may wait for one model.
pub const QUEUE_BOUND: usize = 65_536;
/// How long past its deadline a request already on a replica is still worth answering.
pub const GRACE: Duration = Duration::from_millis(5);
const RATE_WINDOW: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct Dispatch {
    settings: Settings,
    rule: Box<dyn Rule>,
    queues: Queues,
    replicas: Vec<Replica>,
    demand: ArrivalRate,
    shares: Shares,
    /// The elements of a row, by batch key; empty where shapes do not matter.
    elements: Vec<Option<f64>>,
    next_batch: u64,
    wakes_at: Moment,
}

impl Dispatch {
    pub fn new(settings: Settings, rule: Box<dyn Rule>) -> Self {
        assert!(settings.max_batch >= 1);
        assert!(settings.objective > Duration::ZERO);
        Self {
            settings,
            rule,
            queues: Queues::default(),
            replicas: Vec::new(),
            demand: ArrivalRate::new(RATE_WINDOW),
            shares: Shares::default(),
            elements: Vec::new(),
            next_batch: 1,
            wakes_at: Moment::NEVER,
        }
    }

    /// Changes what the operator asked; requests already here keep their deadlines.
    pub fn reconfigure(&mut self, settings: Settings, rule: Box<dyn Rule>) {
        assert!(settings.max_batch >= 1);
        self.settings = settings;
        self.rule = rule;
        let allowed = self.allowed();
        for replica in &mut self.replicas {
            for latency in replica.curves.each_mut() {
                latency.rebound(settings.max_batch);
            }
            replica.aimd.rebound(settings.max_batch);
            replica.appraise(allowed, 1.0, self.rule.guard());
        }
        self.wake_at_once();
    }

    pub fn set_weights(&mut self, weights: &[f64]) {
        self.shares.set_weights(weights);
    }

    /// Brings a warm replica into rotation, at the smallest batch limit.
    ///
    /// Nothing is concluded from a replica of which nothing was `measured`, until it has shown how fast
    /// it is. What it measured is its work alone. Without the way to it, one that works for microseconds
    /// would seem to gain nothing by larger batches, and never be given any.
    pub fn add_replica(
        &mut self,
        id: u32,
        measured: &[(u32, Duration)],
        now: Moment,
    ) -> Vec<Effect> {
        assert!(self.replica(id).is_none(), "replica {id} is in rotation already");
        let seen = self.on_the_way(measured);
        let mut replica = Replica::new(id, &seen, self.settings.max_batch, now);
        replica.appraise(self.allowed(), 1.0, self.rule.guard());
        self.replicas.push(replica);
        let mut effects = Vec::new();
        self.pump(now, &mut effects);
        effects
    }

    /// Requests of batch key `key` have so many elements a row: their time is learned for themselves.
    pub fn describe_key(&mut self, key: u32, elements: u64) {
        let key = key as usize;
        if key >= self.elements.len() {
            self.elements.resize(key + 1, None);
        }
        self.elements[key] = Some(elements.max(1) as f64);
    }

    /// What replica `id` `measured` of requests of `key`, which were [described](Self::describe_key).
    pub fn teach(&mut self, id: u32, key: u32, measured: &[(u32, Duration)]) {
        let (seen, allowed, guard) = (self.on_the_way(measured), self.allowed(), self.rule.guard());
        let (Some(index), Some(shape)) = (self.replica(id), self.shape(key as usize)) else {
            return;
        };
        if !seen.is_empty() {
            self.replicas[index].curves.teach(shape, &seen);
            self.replicas[index].appraise(allowed, 1.0, guard);
        }
    }

    /// Forgets what every batch key was: they will be others. Only while nobody waits or is served.
    pub fn forget_keys(&mut self) {
        self.elements.clear();
        self.replicas.iter_mut().for_each(|replica| replica.curves.forget_keys());
    }

    /// The time that a batch of `rows` of `key` is expected to take on replica `id`; none while
    /// nothing of it was measured.
    pub fn expected(&self, id: u32, key: u32, rows: u32) -> Option<Duration> {
        let latency = self.replicas[self.replica(id)?].curves.own(key as usize)?;
        latency.is_known().then(|| latency.mean(rows))
    }

    fn shape(&self, key: usize) -> Option<Shape> {
        let elements = (*self.elements.get(key)?)?;
        Some(Shape { key, elements })
    }

    fn on_the_way(&self, measured: &[(u32, Duration)]) -> Vec<(u32, Duration)> {
        measured.iter().map(|(rows, took)| (*rows, *took + self.settings.way)).collect()
    }

    /// Gives `id` no more batches; it leaves rotation when those it has are done.
    ///
    /// If it was the last, those who wait are refused at the next tick, which is due at once.
    pub fn drain_replica(&mut self, id: u32) {
        if let Some(index) = self.replica(id) {
            self.replicas[index].draining = true;
            self.forget_drained(index);
            self.wake_at_once();
        }
    }

    pub fn waiting(&self) -> usize {
        self.queues.len()
    }

    /// The arrival of the request that has waited longest. Looks at all who wait.
    pub fn oldest(&self) -> Option<Moment> {
        let lines = self.queues.iter().flat_map(|(_, queue)| queue.lines());
        lines.flat_map(|line| line.iter()).map(|waiting| waiting.arrived).min()
    }

    pub fn in_flight(&self) -> usize {
        self.replicas.iter().flat_map(Replica::flights).map(|flight| flight.live().count()).sum()
    }

    /// Whether nothing waits, nothing is in flight and nothing is due: as good as new but for what
    /// was learned.
    pub fn is_idle(&self) -> bool {
        self.queues.is_empty()
            && self.replicas.iter().all(|replica| replica.flights().next().is_none())
            && self.wakes_at == Moment::NEVER
    }

    /// When to call [`Dispatch::tick`] if nothing happens before.
    pub fn wakes_at(&self) -> Moment {
        self.wakes_at
    }

    pub fn limits(&self) -> impl Iterator<Item = BatchLimit> + '_ {
        let guard = self.rule.guard();
        self.replicas.iter().map(move |replica| {
            let rows = replica.limit(guard);
            let set_by =
                if rows < self.settings.max_batch { LimitedBy::Aimd } else { LimitedBy::MaxBatch };
            let slowdown = replica.curves.last().slowdown(rows);
            BatchLimit { replica: replica.id, rows, set_by, slowdown }
        })
    }

    /// Gives a replica the batch limit it had in the process that this one replaced.
    pub fn resume_limit(&mut self, id: u32, rows: u32) {
        if let Some(index) = self.replica(id) {
            self.replicas[index].aimd.resume(rows);
        }
    }

    pub fn rate(&self, now: Moment) -> f64 {
        self.demand.per_second(Kind::All, now)
    }

    /// A request has come, and nothing else. Refused at once if it would finish late.
    pub fn arrive(
        &mut self,
        arrival: Arrival,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.enter(arrival, now, effects)?;
        self.tick(now, effects);
        Ok(())
    }

    /// One of several requests has come. Refused at once if it would finish late, else it waits for
    /// the [tick](Self::tick) that is owed once all of them were told: they may then share a batch.
    pub fn enter(
        &mut self,
        arrival: Arrival,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        assert!(arrival.rows >= 1, "a request without rows");
        if let Some(shape) = self.shape(arrival.key as usize) {
            self.replicas.iter_mut().for_each(|replica| replica.curves.meet(shape));
        }
        let priority = self.priority(&arrival, now);
        let waiting = Waiting {
            id: arrival.id,
            arrived: now,
            until: arrival.until,
            rows: arrival.rows,
            tenant: arrival.tenant,
            priority,
            company: u32::MAX,
            strikes: 0,
        };
        let admitted = self.admit(arrival.key as usize, &waiting, now, effects);
        match (priority, admitted) {
            (Priority::Low, Ok(Priority::Low)) => self.demand.add(Kind::Low, waiting.rows, now),
            (Priority::Low, Ok(_) | Err(_)) => {}
            (_, Ok(Priority::Late) | Err(_)) => self.shares.refused(waiting.tenant, waiting.rows),
            (_, Ok(_)) => self.shares.granted(waiting.tenant, waiting.rows),
        }
        let priority = admitted?;
        self.queues.insert(arrival.key as usize, Waiting { priority, ..waiting });
        Ok(())
    }

    /// The caller of a request has left.
    ///
    /// `key` and `until` are those it arrived with. Nothing happens if it was answered before.
    pub fn cancel(&mut self, id: u64, key: u32, until: Until, effects: &mut Vec<Effect>) {
        if self.queues.remove(key as usize, until, id).is_some() {
            return;
        }
        for replica in &mut self.replicas {
            if replica.flights_mut().any(|flight| flight.release(id)) {
                effects.extend(replica.call_off());
                return;
            }
        }
    }

    pub fn tick(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.pump(now, effects);
    }

    fn priority(&mut self, arrival: &Arrival, now: Moment) -> Priority {
        self.demand.add(Kind::All, arrival.rows, now);
        match arrival.class {
            Class::Batch => Priority::Low,
            Class::Interactive => {
                self.demand.add(Kind::Main, arrival.rows, now);
                if self.shares.is_due(now) {
                    self.shares.divide(self.lossless(now), now);
                }
                if self.rule.predicts() && self.shares.protects(arrival.tenant) {
                    Priority::Protected
                } else {
                    Priority::Normal
                }
            }
        }
    }

    /// Time from arrival to the useful end of a batch.
    fn allowed(&self) -> Duration {
        self.settings.objective.saturating_sub(self.settings.margin)
    }

    fn wake_at_once(&mut self) {
        if !self.queues.is_empty() {
            self.wakes_at = Moment::default();
        }
    }

    fn in_rotation(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.iter().filter(|replica| !replica.draining)
    }

    fn replica(&self, id: u32) -> Option<usize> {
        self.replicas.iter().position(|replica| replica.id == id)
    }

    fn forget_drained(&mut self, index: usize) {
        let replica = &self.replicas[index];
        if replica.draining && replica.running.is_none() {
            self.replicas.remove(index);
        }
    }
}

/// Notes that `waiting`, which was let in, will not be in time. The batch class has no share, and who
/// is late already was told of before.
fn revoke(shares: &mut Shares, waiting: &Waiting) {
    match waiting.priority {
        Priority::Late | Priority::Low => {}
        Priority::Normal | Priority::Protected => shares.revoked(waiting.tenant, waiting.rows),
    }
}

#[cfg(test)]
mod tests;

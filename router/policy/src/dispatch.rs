//! The whole life of one model's requests, as a machine without a clock.
//!
//! Events go in with the time they happened; [`Effect`]s come out for the caller to carry out, and
//! [`Dispatch::wakes_at`] says when to call again if nothing happens. Every request handed to
//! [`Dispatch::arrive`] leaves by exactly one way: refused there, refused or failed by an effect,
//! withdrawn by [`Dispatch::cancel`], or answered by the caller when its batch finishes.

mod admission;
mod forming;
mod settling;

use std::time::Duration;

use crate::{
    aimd::{self, Aimd, Step},
    breaker::Breaker,
    fair::Shares,
    latency::{Change, Latency},
    moment::Moment,
    queue::{Lane, Standing, Waiting},
    rate::Rate,
    replica::Replica,
    rule::Rule,
};

/// The most requests that may wait for one model.
pub const QUEUE_BOUND: usize = 65_536;
/// How long past its deadline a request already on a replica is still worth answering.
pub const GRACE: Duration = Duration::from_millis(5);
const RATE_WINDOW: Duration = Duration::from_millis(300);
const SHRINK: f64 = 0.9;

/// What the operator asked of the model.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time from arrival to answer.
    pub objective: Duration,
    /// The most rows one batch may hold.
    pub max_batch: u32,
    /// How long before a replica is free its next batch is sent.
    pub lead: Duration,
    /// Time kept back before each deadline for what the router cannot see.
    pub margin: Duration,
}

/// The class a caller asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Served in its own right.
    #[default]
    Interactive,
    /// Served in the room that is left; shed first.
    Batch,
}

/// A request as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Unique among those in the machine.
    pub id: u64,
    /// Which requests it may share a batch with.
    pub key: u32,
    /// When its answer is due.
    pub deadline: Moment,
    /// Rows it adds to a batch.
    pub rows: u32,
    /// Whose it is.
    pub tenant: u32,
    /// Its class.
    pub class: Class,
}

/// Why a request was turned away, with the numbers that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It would have finished late.
    Overloaded {
        /// Requests waiting at the time.
        waiting: usize,
        /// When it would have finished, from its arrival.
        predicted: Duration,
        /// When a request like it is expected to be admitted.
        retry_after: Duration,
    },
    /// Its deadline came while it waited.
    TooLate {
        /// How long it had waited.
        waited: Duration,
    },
    /// No replica is in rotation.
    NoReplica,
    /// The queue is at its bound.
    Full {
        /// The bound.
        waiting: usize,
    },
}

/// Why a batch was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// The batch limit was reached.
    Full,
    /// The tightest deadline in it allowed no more.
    Deadline,
    /// A replica was idle and all who waited are in it.
    IdleReplica,
    /// Others waited, but of another shape.
    Shape,
}

/// A batch to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its name.
    pub id: u64,
    /// Where to.
    pub replica: u32,
    /// Who is in it, in order.
    pub requests: Vec<u64>,
    /// Their rows together.
    pub rows: u32,
    /// Why it holds no more.
    pub closed_by: ClosedBy,
}

/// Something for the caller to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a batch.
    Send(Batch),
    /// Answer a request with a refusal.
    Refuse {
        /// Whom.
        id: u64,
        /// Why.
        why: Refusal,
    },
    /// Answer a request with the failure its replica reported last.
    Fail {
        /// Whom.
        id: u64,
    },
    /// Tell a replica to forget a batch that nobody waits for.
    Cancel {
        /// Which batch.
        batch: u64,
        /// Where it is.
        replica: u32,
    },
}

/// How a batch came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With answers.
    Done,
    /// Not run, at our request.
    Cancelled,
    /// With an error that one of its requests caused.
    RequestFault,
    /// With an error that the replica caused.
    ReplicaFault,
}

/// What a finished batch taught, for the record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    /// Rows it held.
    pub rows: u32,
    /// What it did to the batch limit.
    pub step: Step,
    /// The limit after it.
    pub limit: u32,
    /// What it did to the latency curve.
    pub change: Change,
    /// How long the replica was busy with it.
    pub took: Duration,
    /// How long that was expected to be.
    pub expected: Duration,
}

/// The machine.
#[derive(Debug)]
pub struct Dispatch {
    settings: Settings,
    rule: Box<dyn Rule>,
    lanes: Vec<Lane>,
    waiting: usize,
    replicas: Vec<Replica>,
    rate: Rate,
    shares: Shares,
    next_batch: u64,
    wakes_at: Moment,
}

impl Dispatch {
    /// An empty machine with no replicas.
    pub fn new(settings: Settings, rule: Box<dyn Rule>) -> Self {
        assert!(settings.max_batch >= 1);
        assert!(settings.objective > Duration::ZERO);
        Self {
            settings,
            rule,
            lanes: Vec::new(),
            waiting: 0,
            replicas: Vec::new(),
            rate: Rate::new(RATE_WINDOW),
            shares: Shares::default(),
            next_batch: 1,
            wakes_at: Moment::NEVER,
        }
    }

    /// Changes what the operator asked; requests already here keep their deadlines.
    pub fn reconfigure(&mut self, settings: Settings, rule: Box<dyn Rule>) {
        self.settings = settings;
        self.rule = rule;
        for replica in &mut self.replicas {
            replica.latency.rebound(settings.max_batch);
            replica.aimd.rebound(settings.max_batch);
        }
    }

    /// Sets the tenants' weights, by index.
    pub fn set_weights(&mut self, weights: &[f64]) {
        self.shares.set_weights(weights);
    }

    /// Brings a warm replica into rotation, at the smallest batch limit.
    pub fn add_replica(&mut self, id: u32, measured: &[(u32, Duration)], now: Moment) -> Vec<Effect> {
        assert!(self.replica(id).is_none(), "replica {id} is in rotation already");
        let max = self.settings.max_batch;
        self.replicas.push(Replica {
            id,
            latency: Latency::new(measured, max),
            aimd: Aimd::new(aimd::Rule { min: 1, max, shrink: SHRINK, slow_start: true }),
            breaker: Breaker::default(),
            running: None,
            next: None,
            draining: false,
        });
        let mut effects = Vec::new();
        self.pump(now, &mut effects);
        effects
    }

    /// Gives `id` no more batches; it leaves rotation when those it has are done.
    pub fn drain_replica(&mut self, id: u32) {
        if let Some(index) = self.replica(id) {
            self.replicas[index].draining = true;
            self.forget_drained(index);
        }
    }

    /// Requests waiting for a batch.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The arrival of the request that has waited longest.
    pub fn oldest(&self) -> Option<Moment> {
        let lines = self.lanes.iter().flat_map(|lane| [&lane.main, &lane.low]);
        lines.flat_map(|line| line.iter()).map(|waiting| waiting.arrived).min()
    }

    /// Requests on replicas whose callers still wait.
    pub fn in_flight(&self) -> usize {
        let flights = self.replicas.iter().flat_map(Replica::flights);
        flights.flat_map(|flight| &flight.members).filter(|member| !member.gone).count()
    }

    /// When to call [`Dispatch::tick`] if nothing happens before.
    pub fn wakes_at(&self) -> Moment {
        self.wakes_at
    }

    /// Replicas in rotation, with their batch limits.
    pub fn limits(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let guard = self.rule.guard();
        self.replicas.iter().map(move |replica| (replica.id, replica.limit(guard)))
    }

    /// Rows per second arriving.
    pub fn rate(&self, now: Moment) -> f64 {
        self.rate.per_second(now)
    }

    /// A request has come. Refused at once if it would finish late.
    pub fn arrive(
        &mut self,
        arrival: Arrival,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        assert!(arrival.rows >= 1 && arrival.rows <= self.settings.max_batch);
        self.rate.add(now, arrival.rows);
        self.shares.asked(arrival.tenant, arrival.rows, now);
        let standing = match arrival.class {
            Class::Batch => Standing::Low,
            Class::Interactive if self.shares.protects(arrival.tenant, now) => Standing::Protected,
            Class::Interactive => Standing::Normal,
        };
        let waiting = Waiting {
            id: arrival.id,
            arrived: now,
            deadline: arrival.deadline,
            rows: arrival.rows,
            tenant: arrival.tenant,
            standing,
            alone: false,
        };
        self.admit(arrival.key, waiting, now, effects)?;
        self.enqueue(arrival.key, waiting);
        self.pump(now, effects);
        Ok(())
    }

    /// The caller of a request has left.
    ///
    /// `key` and `deadline` are those it arrived with. Nothing happens if it was answered before.
    pub fn cancel(&mut self, id: u64, key: u32, deadline: Moment, effects: &mut Vec<Effect>) {
        if let Some(lane) = self.lanes.get_mut(key as usize) {
            let removed = lane.main.remove(deadline, id).or_else(|| lane.low.remove(deadline, id));
            if removed.is_some() {
                self.waiting -= 1;
                return;
            }
        }
        for replica in &mut self.replicas {
            if !replica.flights_mut().any(|flight| flight.release(id)) {
                continue;
            }
            if let Some(next) = replica.next.as_ref().filter(|flight| flight.is_abandoned()) {
                effects.push(Effect::Cancel { batch: next.batch, replica: replica.id });
            }
            return;
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.pump(now, effects);
    }

    fn enqueue(&mut self, key: u32, waiting: Waiting) {
        let key = key as usize;
        if key >= self.lanes.len() {
            self.lanes.resize_with(key + 1, Lane::default);
        }
        self.lanes[key].line(waiting.standing).insert(waiting);
        self.waiting += 1;
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

#[cfg(test)]
mod tests;

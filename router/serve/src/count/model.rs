//! What happened to one model's requests, counted as it happens.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use policy::dispatch::ClosedBy;
use serde::{Deserialize, Serialize};

use super::{Histogram, Scale};
use crate::error::InferError;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered.
    Served {
        /// Time from arrival.
        took: Duration,
        /// Whether that was within the objective.
        in_time: bool,
    },
    /// Turned away.
    Refused(Reason),
    /// The client left first.
    Abandoned,
    /// A replica failed it, or we did.
    Failed,
}

/// Why a request was turned away: a fixed set, so that the label's values are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It would have been late.
    Overloaded,
    /// Its tenant is over its rate, or has too many under way.
    Quota,
    /// Its deadline came first.
    TooLate,
    /// No replica can be asked.
    NoReplica,
    /// The caller's mistake.
    Invalid,
}

impl From<&InferError> for Outcome {
    fn from(error: &InferError) -> Self {
        match error {
            InferError::Replica { .. } | InferError::Internal { .. } => Self::Failed,
            InferError::Unwritable(_) if error.status().is_server_error() => Self::Failed,
            InferError::Overloaded { .. }
            | InferError::OutOfRoom { .. }
            | InferError::TooManyConnections { .. } => Self::Refused(Reason::Overloaded),
            InferError::Quota { .. } | InferError::Crowded { .. } => Self::Refused(Reason::Quota),
            InferError::TooLate { .. } => Self::Refused(Reason::TooLate),
            InferError::NoReplica { .. } | InferError::Unavailable { .. } => {
                Self::Refused(Reason::NoReplica)
            }
            InferError::UnknownPath { .. }
            | InferError::WrongMethod { .. }
            | InferError::UnknownModel { .. }
            | InferError::UnknownVersion { .. }
            | InferError::Invalid(_)
            | InferError::Unfit { .. }
            | InferError::BadBody { .. }
            | InferError::BadValue { .. }
            | InferError::BodyTooLarge { .. }
            | InferError::InflatesTooLarge { .. }
            | InferError::BodyTooSlow { .. }
            | InferError::BodyCut { .. }
            | InferError::UnknownCoding { .. }
            | InferError::BadCoding { .. }
            | InferError::Unauthorized
            | InferError::Forbidden { .. }
            | InferError::Unwritable(_)
            | InferError::Unsupported { .. } => Self::Refused(Reason::Invalid),
        }
    }
}

/// The counts and distributions of one model.
#[derive(Debug)]
pub struct ModelMetrics {
    counts: Counts,
    /// Time from arrival to answer.
    pub request: Histogram,
    /// Time from arrival to dispatch.
    pub queue: Histogram,
    /// Rows of each batch.
    pub rows: Histogram,
    /// How long batches took on slices of each profile.
    pub batch_times: Mutex<BTreeMap<String, Arc<Histogram>>>,
}

#[derive(Debug, Default)]
struct Counts {
    served: AtomicU64,
    within: AtomicU64,
    abandoned: AtomicU64,
    failed: AtomicU64,
    overloaded: AtomicU64,
    quota: AtomicU64,
    too_late: AtomicU64,
    no_replica: AtomicU64,
    invalid: AtomicU64,
    full: AtomicU64,
    deadline: AtomicU64,
    idle_replica: AtomicU64,
    shape: AtomicU64,
    hit: AtomicU64,
    joined: AtomicU64,
    miss: AtomicU64,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            request: Histogram::new(Scale::Seconds),
            queue: Histogram::new(Scale::Seconds),
            rows: Histogram::new(Scale::Rows),
            batch_times: Mutex::default(),
        }
    }
}

impl ModelMetrics {
    /// A request ended.
    pub fn ended(&self, outcome: Outcome) {
        match outcome {
            Outcome::Served { took, in_time } => {
                add(&self.counts.served);
                self.request.record(took.as_secs_f64());
                if in_time {
                    add(&self.counts.within);
                }
            }
            Outcome::Refused(Reason::Overloaded) => add(&self.counts.overloaded),
            Outcome::Refused(Reason::Quota) => add(&self.counts.quota),
            Outcome::Refused(Reason::TooLate) => add(&self.counts.too_late),
            Outcome::Refused(Reason::NoReplica) => add(&self.counts.no_replica),
            Outcome::Refused(Reason::Invalid) => add(&self.counts.invalid),
            Outcome::Abandoned => add(&self.counts.abandoned),
            Outcome::Failed => add(&self.counts.failed),
        }
    }

    /// A batch of `rows` left.
    pub fn sent(&self, rows: u32, closed_by: ClosedBy) {
        self.rows.record(f64::from(rows));
        add(match closed_by {
            ClosedBy::Full => &self.counts.full,
            ClosedBy::Deadline => &self.counts.deadline,
            ClosedBy::IdleReplica => &self.counts.idle_replica,
            ClosedBy::Shape => &self.counts.shape,
        });
    }

    /// A request left the queue for a replica after `waited`.
    pub fn dispatched(&self, waited: Duration) {
        self.queue.record(waited.as_secs_f64());
    }

    /// Where the times of batches on slices of `profile` are recorded.
    pub fn batch_time(&self, profile: &str) -> Arc<Histogram> {
        let mut times = self.batch_times.lock();
        let time = times.entry(profile.to_owned());
        Arc::clone(time.or_insert_with(|| Arc::new(Histogram::new(Scale::Seconds))))
    }

    /// A request was answered from memory.
    pub fn cache_hit(&self) {
        add(&self.counts.hit);
    }

    /// A request waits for the same one already under way.
    pub fn cache_joined(&self) {
        add(&self.counts.joined);
    }

    /// A request was not in memory.
    pub fn cache_miss(&self) {
        add(&self.counts.miss);
    }

    /// Every count so far.
    pub fn totals(&self) -> Totals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // In this order, so that no reading shows more within the objective than served.
        let within_objective = read(&self.counts.within);
        Totals {
            served: read(&self.counts.served),
            within_objective,
            abandoned: read(&self.counts.abandoned),
            failed: read(&self.counts.failed),
            refusals: Refusals {
                overloaded: read(&self.counts.overloaded),
                quota: read(&self.counts.quota),
                too_late: read(&self.counts.too_late),
                no_replica: read(&self.counts.no_replica),
                invalid: read(&self.counts.invalid),
            },
            batches: Closings {
                full: read(&self.counts.full),
                deadline: read(&self.counts.deadline),
                idle_replica: read(&self.counts.idle_replica),
                shape: read(&self.counts.shape),
            },
            cache: Lookups {
                hit: read(&self.counts.hit),
                joined: read(&self.counts.joined),
                miss: read(&self.counts.miss),
            },
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Every count of a model since the router started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests answered.
    pub served: u64,
    /// Those answered within the objective.
    pub within_objective: u64,
    /// Requests whose client left first.
    pub abandoned: u64,
    /// Requests a replica failed, or we did.
    pub failed: u64,
    /// Requests turned away, by reason.
    pub refusals: Refusals,
    /// Batches sent, by why they held no more.
    pub batches: Closings,
    /// Requests looked up in the prediction cache, by result.
    pub cache: Lookups,
}

impl Totals {
    /// Requests turned away.
    pub fn refused(&self) -> u64 {
        self.refusals.each().iter().map(|(_, count)| count).sum()
    }

    /// Requests that count for the objective: neither the caller's mistake, nor beyond its quota,
    /// nor given up by it.
    pub fn eligible(&self) -> u64 {
        let Refusals { overloaded, quota: _, too_late, no_replica, invalid: _ } = self.refusals;
        self.served + self.failed + overloaded + too_late + no_replica
    }

    /// Each outcome's label and count.
    pub fn outcomes(&self) -> [(&'static str, u64); 4] {
        [
            ("served", self.served),
            ("refused", self.refused()),
            ("abandoned", self.abandoned),
            ("failed", self.failed),
        ]
    }
}

/// Refusals by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    pub overloaded: u64,
    pub quota: u64,
    pub too_late: u64,
    pub no_replica: u64,
    pub invalid: u64,
}

impl Refusals {
    /// Each reason's label and count.
    pub fn each(&self) -> [(&'static str, u64); 5] {
        let Self { overloaded, quota, too_late, no_replica, invalid } = *self;
        [
            ("overloaded", overloaded),
            ("quota", quota),
            ("too_late", too_late),
            ("no_replica", no_replica),
            ("invalid", invalid),
        ]
    }
}

/// Batches by why they held no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closings {
    pub full: u64,
    pub deadline: u64,
    pub idle_replica: u64,
    pub shape: u64,
}

impl Closings {
    /// Each label and count.
    pub fn each(&self) -> [(&'static str, u64); 4] {
        let Self { full, deadline, idle_replica, shape } = *self;
        [("full", full), ("deadline", deadline), ("idle_replica", idle_replica), ("shape", shape)]
    }
}

/// Lookups in the prediction cache by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookups {
    /// Answered from memory.
    pub hit: u64,
    /// Answered by an equal request already under way.
    pub joined: u64,
    /// Not in memory.
    pub miss: u64,
}

impl Lookups {
    /// Each label and count.
    pub fn each(&self) -> [(&'static str, u64); 3] {
        let Self { hit, joined, miss } = *self;
        [("hit", hit), ("joined", joined), ("miss", miss)]
    }
}

//! What happened to one model's requests, counted as it happens.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use metrics::{Histogram, Label};
use policy::dispatch::ClosedBy;
use serde::{Deserialize, Serialize};

use super::{
    histograms::Histograms,
    latency::{Counts as LatencyCounts, Grid},
    spec::{BATCH_ROWS, BATCH_SECONDS, QUEUE_SECONDS, REQUEST_SECONDS},
};
use crate::error::InferError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Served {
        /// Time from arrival.
        took: Duration,
        in_time: bool,
    },
    Refused(Reason),
    Abandoned,
    /// A replica failed it, or we did.
    Failed,
}

/// Why a request was refused: a fixed set, so that the label's values are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Overloaded,
    /// Its tenant exceeded its rate or its requests in flight.
    Quota,
    /// Its deadline passed first.
    TooLate,
    /// Its caller's own limit was shorter than the objective, which would have been kept.
    TooShort,
    NoReplica,
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
            InferError::DeadlineTooShort { .. } => Self::Refused(Reason::TooShort),
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
            | InferError::Follows { .. }
            | InferError::Unkept { .. }
            | InferError::Unsupported { .. } => Self::Refused(Reason::Invalid),
        }
    }
}

/// The counts and distributions of one model.
///
/// Counts are our own, since control and the state document read them; the exporter's handles can
/// only be written.
#[derive(Debug)]
pub struct ModelMetrics {
    counts: Counts,
    latencies: Grid,
    histograms: Histograms,
    request: Histogram,
    queue: Histogram,
    rows: Histogram,
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
    too_short: AtomicU64,
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

impl ModelMetrics {
    pub fn new(model: &str) -> Self {
        let histograms = Histograms::new(model);
        Self {
            counts: Counts::default(),
            latencies: Grid::default(),
            request: histograms.bind(&REQUEST_SECONDS, Vec::new()),
            queue: histograms.bind(&QUEUE_SECONDS, Vec::new()),
            rows: histograms.bind(&BATCH_ROWS, Vec::new()),
            histograms,
        }
    }

    pub fn ended(&self, outcome: Outcome) {
        match outcome {
            Outcome::Served { took, in_time } => {
                add(&self.counts.served);
                self.request.record(took.as_secs_f64());
                self.latencies.record(took);
                if in_time {
                    add(&self.counts.within);
                }
            }
            Outcome::Refused(Reason::Overloaded) => add(&self.counts.overloaded),
            Outcome::Refused(Reason::Quota) => add(&self.counts.quota),
            Outcome::Refused(Reason::TooLate) => add(&self.counts.too_late),
            Outcome::Refused(Reason::TooShort) => add(&self.counts.too_short),
            Outcome::Refused(Reason::NoReplica) => add(&self.counts.no_replica),
            Outcome::Refused(Reason::Invalid) => add(&self.counts.invalid),
            Outcome::Abandoned => add(&self.counts.abandoned),
            Outcome::Failed => add(&self.counts.failed),
        }
    }

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
    pub fn batch_time(&self, profile: &str) -> Histogram {
        self.histograms.bind(&BATCH_SECONDS, vec![Label::new("profile", profile.to_owned())])
    }

    /// Folds the samples recorded since the last time into their buckets.
    ///
    /// Samples are held until then, so this is called every [`DRAIN_EVERY`](super::DRAIN_EVERY)
    /// whether or not anybody scrapes.
    pub fn drain(&self) {
        self.histograms.drain();
    }

    pub fn render(&self) -> String {
        self.histograms.render()
    }

    pub fn cache_hit(&self) {
        add(&self.counts.hit);
    }

    /// A request joined an equal one in flight.
    pub fn cache_joined(&self) {
        add(&self.counts.joined);
    }

    pub fn cache_miss(&self) {
        add(&self.counts.miss);
    }

    /// Answers since the start, by how long they took.
    pub fn latencies(&self) -> LatencyCounts {
        self.latencies.read()
    }

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
                deadline_too_short: read(&self.counts.too_short),
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub served: u64,
    pub within_objective: u64,
    pub abandoned: u64,
    pub failed: u64,
    pub refusals: Refusals,
    /// Batches sent, by why they held no more.
    pub batches: Closings,
    pub cache: Lookups,
}

impl Totals {
    pub fn refused(&self) -> u64 {
        self.refusals.each().iter().map(|(_, count)| count).sum()
    }

    /// Requests that count for the objective: neither invalid, nor over quota, nor given less time
    /// than the objective by their callers, nor abandoned.
    pub fn eligible(&self) -> u64 {
        let Refusals {
            overloaded,
            quota: _,
            too_late,
            deadline_too_short: _,
            no_replica,
            invalid: _,
        } = self.refusals;
        self.served + self.failed + overloaded + too_late + no_replica
    }

    /// Requests served after the objective.
    pub fn late(&self) -> u64 {
        self.served.saturating_sub(self.within_objective)
    }

    pub fn outcomes(&self) -> [(&'static str, u64); 4] {
        [
            ("served", self.served),
            ("refused", self.refused()),
            ("abandoned", self.abandoned),
            ("failed", self.failed),
        ]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    pub overloaded: u64,
    pub quota: u64,
    pub too_late: u64,
    /// By their callers' own limits, shorter than the objective.
    #[serde(default)]
    pub deadline_too_short: u64,
    pub no_replica: u64,
    pub invalid: u64,
}

impl Refusals {
    pub fn each(&self) -> [(&'static str, u64); 6] {
        let Self { overloaded, quota, too_late, deadline_too_short, no_replica, invalid } = *self;
        [
            ("overloaded", overloaded),
            ("quota", quota),
            ("too_late", too_late),
            ("deadline_too_short", deadline_too_short),
            ("no_replica", no_replica),
            ("invalid", invalid),
        ]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closings {
    pub full: u64,
    pub deadline: u64,
    pub idle_replica: u64,
    pub shape: u64,
}

impl Closings {
    pub fn each(&self) -> [(&'static str, u64); 4] {
        let Self { full, deadline, idle_replica, shape } = *self;
        [("full", full), ("deadline", deadline), ("idle_replica", idle_replica), ("shape", shape)]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookups {
    /// Answered from memory.
    pub hit: u64,
    /// Answered by an equal request in flight.
    pub joined: u64,
    pub miss: u64,
}

impl Lookups {
    pub fn each(&self) -> [(&'static str, u64); 3] {
        let Self { hit, joined, miss } = *self;
        [("hit", hit), ("joined", joined), ("miss", miss)]
    }
}

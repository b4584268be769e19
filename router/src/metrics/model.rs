//! One model's series, with labels bound once so that the hot path allocates nothing.

use std::{collections::HashMap, time::Duration};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use parking_lot::Mutex;
use policy::dispatch::ClosedBy;

use super::{
    BATCH_ROWS, BATCHES, CACHE, LIMIT, OLDEST, QUEUE_SECONDS, REFUSALS, REPLICAS, REQUEST_SECONDS,
    REQUESTS, WAITING, WITHIN,
};

const REASONS: [&str; 6] = ["overloaded", "quota", "too_late", "no_replica", "draining", "invalid"];
/// Where reasons outside the fixed set are counted: with what the caller got wrong.
const OTHER_REASON: usize = 5;
const STATES: [&str; 5] = ["starting", "warming", "ready", "draining", "failed"];

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
    /// Turned away, for one of the fixed reasons.
    Refused(&'static str),
    /// The client left first.
    Abandoned,
    /// A replica failed it.
    Failed,
}

/// The series of one model.
pub struct ModelMetrics {
    model: String,
    served: Counter,
    refused: Counter,
    abandoned: Counter,
    failed: Counter,
    reasons: [Counter; REASONS.len()],
    within: Counter,
    request: Histogram,
    queue: Histogram,
    waiting: Gauge,
    oldest: Gauge,
    rows: Histogram,
    closed: [Counter; 4],
    replicas: [Gauge; STATES.len()],
    cache_hit: Counter,
    cache_joined: Counter,
    cache_miss: Counter,
    limits: Mutex<HashMap<String, Gauge>>,
}

impl std::fmt::Debug for ModelMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelMetrics").field("model", &self.model).finish_non_exhaustive()
    }
}

impl ModelMetrics {
    /// Binds the series of `model`, each at zero.
    pub fn new(model: &str) -> Self {
        let name = || model.to_owned();
        let outcome = |outcome| counter!(REQUESTS.name, "model" => name(), "outcome" => outcome);
        let closed = |by| counter!(BATCHES.name, "model" => name(), "closed_by" => by);
        let cache = |result| counter!(CACHE.name, "model" => name(), "result" => result);
        Self {
            model: name(),
            served: outcome("served"),
            refused: outcome("refused"),
            abandoned: outcome("abandoned"),
            failed: outcome("failed"),
            reasons: REASONS
                .map(|reason| counter!(REFUSALS.name, "model" => name(), "reason" => reason)),
            within: counter!(WITHIN.name, "model" => name()),
            request: histogram!(REQUEST_SECONDS.name, "model" => name()),
            queue: histogram!(QUEUE_SECONDS.name, "model" => name()),
            waiting: gauge!(WAITING.name, "model" => name()),
            oldest: gauge!(OLDEST.name, "model" => name()),
            rows: histogram!(BATCH_ROWS.name, "model" => name()),
            closed: ["full", "deadline", "idle_replica", "shape"].map(closed),
            replicas: STATES
                .map(|state| gauge!(REPLICAS.name, "model" => name(), "state" => state)),
            cache_hit: cache("hit"),
            cache_joined: cache("joined"),
            cache_miss: cache("miss"),
            limits: Mutex::default(),
        }
    }

    /// A request ended.
    pub fn ended(&self, outcome: Outcome) {
        match outcome {
            Outcome::Served { took, in_time } => {
                self.served.increment(1);
                self.request.record(took.as_secs_f64());
                if in_time {
                    self.within.increment(1);
                }
            }
            Outcome::Refused(reason) => {
                self.refused.increment(1);
                let index = REASONS.iter().position(|known| *known == reason);
                self.reasons[index.unwrap_or(OTHER_REASON)].increment(1);
            }
            Outcome::Abandoned => self.abandoned.increment(1),
            Outcome::Failed => self.failed.increment(1),
        }
    }

    /// A batch of `rows` left.
    pub fn sent(&self, rows: u32, closed_by: ClosedBy) {
        self.rows.record(f64::from(rows));
        let index = match closed_by {
            ClosedBy::Full => 0,
            ClosedBy::Deadline => 1,
            ClosedBy::IdleReplica => 2,
            ClosedBy::Shape => 3,
        };
        self.closed[index].increment(1);
    }

    /// A request left the queue for a replica after `waited`.
    pub fn dispatched(&self, waited: Duration) {
        self.queue.record(waited.as_secs_f64());
    }

    /// So many wait, the first of them for so long.
    pub fn queue(&self, waiting: usize, oldest: Duration) {
        self.waiting.set(waiting as f64);
        self.oldest.set(oldest.as_secs_f64());
    }

    /// The batch limit on `slice` is now `rows`.
    pub fn limit(&self, slice: &str, rows: u32) {
        let mut limits = self.limits.lock();
        let gauge = match limits.get(slice) {
            Some(gauge) => gauge,
            None => limits.entry(slice.to_owned()).or_insert_with(
                || gauge!(LIMIT.name, "model" => self.model.clone(), "slice" => slice.to_owned()),
            ),
        };
        gauge.set(f64::from(rows));
    }

    /// How many replicas are in each state, in the order of the help text.
    pub fn replicas(&self, counts: [usize; STATES.len()]) {
        for (gauge, count) in self.replicas.iter().zip(counts) {
            gauge.set(count as f64);
        }
    }

    /// A request was answered from memory.
    pub fn cache_hit(&self) {
        self.cache_hit.increment(1);
    }

    /// A request waits for the same one already under way.
    pub fn cache_joined(&self) {
        self.cache_joined.increment(1);
    }

    /// A request was not in memory.
    pub fn cache_miss(&self) {
        self.cache_miss.increment(1);
    }
}

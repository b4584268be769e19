//! What goes into the machine and what comes out.

use std::time::Duration;

use crate::{aimd::Step, latency::Change, moment::Moment};

/// There and back.
const WAY: Duration = Duration::from_micros(300);
/// Sent earlier, a batch would lack those who come meanwhile; later, the replica would wait for it.
const LEAD: Duration = WAY;
/// The share of the objective kept back for the way to the client, and its bounds.
const MARGIN_SHARE: u32 = 50;
const MARGIN_LEAST: Duration = Duration::from_micros(300);
const MARGIN_MOST: Duration = Duration::from_millis(5);

/// What the operator asked of the model.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time from arrival to answer.
    pub objective: Duration,
    /// The most rows one batch may hold.
    pub max_batch: u32,
    /// What a batch is expected to take beside its replica's work, until it is learned.
    pub way: Duration,
    /// How long before a replica is free its next batch is sent.
    pub lead: Duration,
    /// Time kept back before each deadline for what the router cannot see.
    pub margin: Duration,
}

impl Settings {
    /// Those of a router: the margin follows from the objective.
    pub fn routed(objective: Duration, max_batch: u32) -> Self {
        let margin = (objective / MARGIN_SHARE).clamp(MARGIN_LEAST, MARGIN_MOST);
        Self { objective, max_batch, way: WAY, lead: LEAD, margin }
    }
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

/// The most rows the next batch on a replica may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchLimit {
    /// The replica.
    pub replica: u32,
    /// The most rows.
    pub rows: u32,
    /// What it is that allows no more.
    pub set_by: LimitedBy,
    /// How many times as long as at first such a batch takes there.
    pub slowdown: f64,
}

/// What holds a batch limit down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// The operator's `max_batch`.
    MaxBatch,
    /// Batches that came late, or too few yet that came in time.
    Aimd,
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
    /// When it should be done.
    pub ends: Moment,
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
    /// Note that requests wait again whose batch is long overdue. Whichever of their answers comes
    /// first counts.
    Retry {
        /// Where the batch is.
        replica: u32,
        /// Which batch.
        batch: u64,
        /// Those of it that wait again.
        requests: Vec<u64>,
    },
    /// Hang up on a replica that does not answer, and say so by [`Dispatch::lost`](super::Dispatch::lost).
    GiveUp {
        /// Which.
        replica: u32,
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

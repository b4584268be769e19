//! What goes into the machine and what comes out.

use std::time::Duration;

use crate::{aimd::Step, latency::Change, moment::Moment, queue::Until};

const WAY: Duration = Duration::from_micros(300);
/// Sent earlier, a batch would lack those who come meanwhile; later, the replica would wait for it.
const LEAD: Duration = WAY;
/// The share of the objective kept back for the way to the client, and its bounds.
const MARGIN_SHARE: u32 = 50;
const MARGIN_LEAST: Duration = Duration::from_micros(300);
const MARGIN_MOST: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub objective: Duration,
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Served in its own right.
    #[default]
    Interactive,
    /// Served in the room that is left; shed first.
    Batch,
}

#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Unique among those in the machine.
    pub id: u64,
    /// Which requests it may share a batch with.
    pub key: u32,
    pub until: Until,
    pub rows: u32,
    pub tenant: u32,
    pub class: Class,
}

/// Why a request was turned away, with the numbers that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It would not have been in time for the objective.
    Overloaded {
        waiting: usize,
        /// When it would have finished, from its arrival, with the time kept back.
        predicted: Duration,
        /// When a request like it is expected to be admitted.
        retry_after: Duration,
    },
    /// It would have been in time for the objective, but not for its caller's own limit.
    TooShort {
        /// As above.
        predicted: Duration,
    },
    TooLate {
        waited: Duration,
    },
    NoReplica,
    Full {
        waiting: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
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
    pub replica: u32,
    pub rows: u32,
    pub set_by: LimitedBy,
    /// How many times as long as at first such a batch takes there.
    pub slowdown: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    MaxBatch,
    /// Batches that came late, or too few yet that came in time.
    Aimd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub id: u64,
    pub replica: u32,
    /// Who is in it, in order.
    pub requests: Vec<u64>,
    pub rows: u32,
    pub ends: Moment,
    pub closed_by: ClosedBy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Send(Batch),
    Refuse {
        id: u64,
        why: Refusal,
    },
    Fail {
        id: u64,
    },
    /// Note that requests wait again whose batch is long overdue. Whichever of their answers comes
    /// first counts.
    Retry {
        replica: u32,
        batch: u64,
        requests: Vec<u64>,
    },
    /// Hang up on a replica that does not answer, and say so by [`Dispatch::lost`](super::Dispatch::lost).
    GiveUp {
        replica: u32,
    },
    /// Tell a replica to forget a batch that nobody waits for.
    Cancel {
        batch: u64,
        replica: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    Cancelled,
    /// With an error that one of its requests caused.
    RequestFault,
    ReplicaFault,
}

/// What a finished batch taught, for the record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    pub rows: u32,
    pub step: Step,
    pub limit: u32,
    pub change: Change,
    pub took: Duration,
    pub expected: Duration,
}

//! When a batch is sent and who is in it: the named rules, behind one interface.
//!
//! `slo` is ours. The others restate published schedulers closely enough to be compared with it in
//! the same harness, and can be chosen per model.

mod aimd;
mod deadline;
mod deferred;
mod earlydrop;
mod slo;
mod timeout;

use std::{fmt, time::Duration};

use crate::{latency::Latency, moment::Moment, queue::Line};

pub use self::{
    aimd::Aimd, deadline::Deadline, deferred::Deferred, earlydrop::EarlyDrop, slo::Slo,
    timeout::Timeout,
};

/// What a rule sees when a replica could be given a batch.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub now: Moment,
    pub start: Moment,
    /// Who waits, earliest deadline first. Never empty.
    pub line: &'a Line,
    pub limit: u32,
    pub latency: &'a Latency,
    pub objective: Duration,
    /// Time kept back before each deadline for what the router cannot see.
    pub margin: Duration,
    pub replicas: u32,
    /// Whether demand exceeds what can be served without loss.
    pub scarce: bool,
    /// Observed over expected time to leave room for while it does.
    pub caution: f64,
}

impl View<'_> {
    /// Time from the start of the batch to the useful end of the `index`-th request.
    pub fn slack(&self, index: usize) -> Duration {
        self.line
            .get(index)
            .map_or(Duration::ZERO, |waiting| (waiting.by() - self.margin).since(self.start))
    }

    /// How many requests from `from` on fit in `rows`, and how many rows they have.
    ///
    /// The first always fits: a request larger than the limit of the moment must still be served.
    pub fn fit(&self, from: usize, rows: u32) -> Fit {
        let mut fit = Fit { count: 0, rows: 0 };
        let mut company = usize::MAX;
        for waiting in self.line.iter().skip(from) {
            company = company.min(waiting.company as usize);
            let joins = fit.rows.saturating_add(waiting.rows) <= rows && fit.count < company;
            if fit.count > 0 && !joins {
                break;
            }
            fit = Fit { count: fit.count + 1, rows: fit.rows + waiting.rows };
        }
        fit
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    pub count: usize,
    pub rows: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send `take` requests, after passing over the first `skip`.
    Send {
        skip: usize,
        take: usize,
        /// Whether those passed over are refused now, or wait on.
        drop_skipped: bool,
        /// Whether the limit or a deadline kept others out.
        bound: Bound,
    },
    /// Send nothing before this moment unless something changes.
    Wait { until: Moment },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nothing: all who waited are in it.
    Waiting,
    Limit,
    Deadline,
}

/// How a rule uses the additive-increase limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Not at all: batches are bounded by the configured maximum.
    Off,
    /// A batch is late when it took longer than the objective.
    Execution,
    /// A batch is late when its tightest deadline was missed.
    Deadlines,
}

pub trait Rule: fmt::Debug + Send {
    fn name(&self) -> &'static str;

    fn decide(&self, view: &View<'_>) -> Decision;

    /// The most rows worth sending at once to a replica under `limit`.
    fn cap(&self, latency: &Latency, limit: u32) -> u32 {
        limit.min(latency.max())
    }

    fn guard(&self) -> Guard;

    /// Whether requests predicted to finish late are refused on arrival and dropped once hopeless.
    fn predicts(&self) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// By deadline within the AIMD limit.
    Slo,
    /// By the AIMD limit alone.
    Aimd,
    /// By deadline alone.
    Deadline,
    /// By deadline, refusing heads that would hold back a larger batch.
    EarlyDrop,
    /// As late as the head's deadline allows.
    Deferred,
    /// At a size or after a wait, as other servers do; for comparison.
    Timeout {
        /// The size that closes a batch. At most the model's `max_batch`.
        batch: u32,
        /// The wait that closes a batch. Less than the objective.
        delay: Duration,
    },
}

impl Batching {
    pub fn name(self) -> &'static str {
        match self {
            Self::Slo => "slo",
            Self::Aimd => "aimd",
            Self::Deadline => "deadline",
            Self::EarlyDrop => "earlydrop",
            Self::Deferred => "deferred",
            Self::Timeout { .. } => "timeout",
        }
    }

    pub fn rule(self) -> Box<dyn Rule> {
        match self {
            Self::Slo => Box::new(Slo),
            Self::Aimd => Box::new(Aimd),
            Self::Deadline => Box::new(Deadline),
            Self::EarlyDrop => Box::new(EarlyDrop),
            Self::Deferred => Box::new(Deferred),
            Self::Timeout { batch, delay } => Box::new(Timeout { batch, delay }),
        }
    }
}

fn send_prefix(view: &View<'_>, rows: u32) -> Decision {
    send_from(view, 0, rows, Bound::Limit)
}

fn send_from(view: &View<'_>, skip: usize, rows: u32, bound: Bound) -> Decision {
    let fit = view.fit(skip, rows);
    let all = skip + fit.count == view.line.len();
    Decision::Send {
        skip,
        take: fit.count,
        drop_skipped: true,
        bound: if all { Bound::Waiting } else { bound },
    }
}

/// The size that Nexus plans for: half the objective for the batch, half for waiting.
fn planned(view: &View<'_>) -> u32 {
    view.latency.largest_within(view.objective / 2).clamp(1, view.limit)
}

/// How many to give up at the head until a batch of `planned`, or all who are left, is in time.
fn window_of(view: &View<'_>, planned: u32) -> Option<usize> {
    let mut rows_left = view.line.rows();
    for (index, waiting) in view.line.iter().enumerate() {
        let size = planned.min(u32::try_from(rows_left).unwrap_or(u32::MAX)).max(waiting.rows);
        if view.latency.high(size) <= view.slack(index) {
            return Some(index);
        }
        rows_left -= u64::from(waiting.rows);
    }
    None
}

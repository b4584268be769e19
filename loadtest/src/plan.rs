//! What one run does, with everything looked up and encoded.

use std::{cmp::Reverse, collections::BinaryHeap, net::SocketAddr, time::Duration};

use bytes::Bytes;
use wire::Secure;

use crate::{
    arrivals::{Process, Shape, Spacing},
    random::Random,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// Time allowed from scheduled arrival to last byte.
    pub slo: Duration,
    /// The share of requests that must be answered within it, 0 to 1.
    pub target: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Process(Process),
    /// Given one by one, in order, from the start of the measured stretch.
    List(Vec<Duration>),
}

impl Source {
    fn first_rate_rps(&self, length: Duration) -> f64 {
        match self {
            Self::Process(process) => process.rate_rps * process.shape.factor(0.0),
            Self::List(list) => list.len() as f64 / length.as_secs_f64(),
        }
    }

    /// The stated rate, which closed loops use as a weight.
    pub fn rate_rps(&self, length: Duration) -> f64 {
        match self {
            Self::Process(process) => process.rate_rps,
            Self::List(list) => list.len() as f64 / length.as_secs_f64(),
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What reports call it: the model, and whatever tells it from others of that model.
    pub name: String,
    pub model: String,
    pub arrivals: String,
    pub source: Source,
    pub requests: Vec<Bytes>,
    pub objective: Objective,
    pub timeout: Option<Duration>,
}

impl Stream {
    /// How long after its arrival an answer is still of use.
    pub fn allowed(&self) -> Duration {
        self.timeout.map_or(self.objective.slo, |timeout| timeout.min(self.objective.slo))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The schedule alone. Latency counts from the scheduled arrival.
    Open,
    /// The answer to the one before. Latency counts from sending, so queueing is hidden.
    Closed { clients: usize },
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub address: SocketAddr,
    pub secure: Option<Secure>,
    /// What is sent. At least one.
    pub streams: Vec<Stream>,
    pub pacing: Pacing,
    pub warmup: Duration,
    pub length: Duration,
    pub grace: Duration,
    pub connections: usize,
    pub seed: u64,
}

pub(crate) type Due = (Duration, usize);

pub(crate) struct Schedule {
    next: BinaryHeap<Reverse<Due>>,
    rest: Vec<Box<dyn Iterator<Item = Duration>>>,
}

impl Schedule {
    pub(crate) fn new(plan: &Plan) -> Self {
        let streams = plan.streams.iter().enumerate();
        let rest = streams.map(|(index, stream)| arrivals(plan, stream, index as u64)).collect();
        let mut schedule = Self { next: BinaryHeap::new(), rest };
        for index in 0..plan.streams.len() {
            schedule.refill(index);
        }
        schedule
    }

    pub(crate) fn peek(&self) -> Option<Duration> {
        self.next.peek().map(|Reverse((at, _))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<Due> {
        let Reverse(due) = self.next.pop()?;
        self.refill(due.1);
        Some(due)
    }

    fn refill(&mut self, index: usize) {
        if let Some(at) = self.rest[index].next() {
            self.next.push(Reverse((at, index)));
        }
    }
}

fn arrivals(plan: &Plan, stream: &Stream, index: u64) -> Box<dyn Iterator<Item = Duration>> {
    let warmup = plan.warmup;
    let first = stream.source.first_rate_rps(plan.length);
    let warm = (first > 0.0 && !warmup.is_zero()).then(|| {
        let process = Process { rate_rps: first, spacing: Spacing::Poisson, shape: Shape::Flat };
        process.arrivals(Random::part(!plan.seed, index), warmup)
    });
    let warm = warm.into_iter().flatten();
    let length = plan.length;
    match &stream.source {
        Source::Process(process) => {
            let measured = process.arrivals(Random::part(plan.seed, index), length);
            Box::new(warm.chain(measured.map(move |at| warmup + at)))
        }
        Source::List(list) => {
            let measured = list.clone().into_iter().take_while(move |at| *at < length);
            Box::new(warm.chain(measured.map(move |at| warmup + at)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(source: Source) -> Stream {
        Stream {
            name: "m".to_owned(),
            model: "m".to_owned(),
            arrivals: "poisson".to_owned(),
            source,
            requests: vec![Bytes::from_static(b"x")],
            objective: Objective { slo: Duration::from_millis(50), target: 0.99 },
            timeout: None,
        }
    }

    fn plan(streams: Vec<Stream>) -> Plan {
        Plan {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            secure: None,
            streams,
            pacing: Pacing::Open,
            warmup: Duration::from_secs(1),
            length: Duration::from_secs(4),
            grace: Duration::ZERO,
            connections: 1,
            seed: 3,
        }
    }

    fn poisson(rate_rps: f64) -> Source {
        Source::Process(Process { rate_rps, spacing: Spacing::Poisson, shape: Shape::Flat })
    }

    fn all(plan: &Plan) -> Vec<Due> {
        let mut schedule = Schedule::new(plan);
        std::iter::from_fn(|| schedule.pop()).collect()
    }

    #[test]
    fn streams_merge_in_order_and_keep_their_own_rates() {
        let due = all(&plan(vec![stream(poisson(1_000.0)), stream(poisson(3_000.0))]));
        assert!(due.is_sorted());
        let second = due.iter().filter(|due| due.1 == 1).count() as f64;
        let share = second / due.len() as f64;
        assert!((share - 0.75).abs() < 0.02, "share of the faster stream: {share}");
    }

    #[test]
    fn a_list_starts_after_the_warm_up_and_ends_with_the_run() {
        let list = (0..10).map(Duration::from_secs).collect();
        let due = all(&plan(vec![stream(Source::List(list))]));
        let measured: Vec<u64> = due
            .iter()
            .filter(|due| due.0 >= Duration::from_secs(1))
            .map(|due| due.0.as_secs())
            .collect();
        assert_eq!(measured, [1, 2, 3, 4]);
    }

    #[test]
    fn a_seed_names_exactly_one_schedule() {
        let with = |seed| all(&Plan { seed, ..plan(vec![stream(poisson(500.0))]) });
        assert_eq!(with(1), with(1));
        assert_ne!(with(1), with(2));
    }

    #[test]
    fn a_shorter_timeout_tightens_what_is_in_time() {
        let timeout =
            |ms| Stream { timeout: Some(Duration::from_millis(ms)), ..stream(poisson(1.0)) };
        assert_eq!(timeout(20).allowed(), Duration::from_millis(20));
        assert_eq!(timeout(80).allowed(), Duration::from_millis(50));
    }
}

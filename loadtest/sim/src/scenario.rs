//! One model and its replicas on a latency curve: the smallest fleet there is.

use std::{sync::Arc, time::Duration};

use loadtest::{
    arrivals::{Process, Shape, Spacing},
    plan::Source,
};
use mig::{Geometry, Kind};
use policy::{
    dispatch::{Class, Settings},
    rule::Batching,
};
use simgpu::Delays;
use simgpu::Load;

use crate::{
    curve::Curve,
    fleet::{Fault, SimFleet, SimModel, SimReplica, Stream as Asking, Terms, Times, Trouble},
    report::{Outcome, Report},
    world::{self, Checks, MakeRule},
};

#[derive(Clone, Debug)]
pub struct Scenario {
    pub settings: Settings,
    /// How long an answer is wanted; none if no longer than the objective.
    pub timeout: Option<Duration>,
    pub replicas: u32,
    pub curve: Curve,
    pub noise: f64,
    /// From when, and by how much, they become slower.
    pub slowdown: Option<(Duration, f64)>,
    /// Shapes of inputs, as likely as each other; only equals share a batch.
    pub shapes: u32,
    pub streams: Vec<Stream>,
    pub duration: Duration,
    pub warmup: Duration,
    pub seed: u64,
}

impl Scenario {
    pub fn routed(curve: Curve, max_batch: u32, objective: Duration) -> Self {
        Self {
            settings: Settings::routed(objective, max_batch),
            timeout: None,
            replicas: 1,
            curve,
            noise: 0.0,
            slowdown: None,
            shapes: 1,
            streams: Vec::new(),
            duration: Duration::from_secs(6),
            warmup: Duration::from_secs(1),
            seed: 0,
        }
    }

    /// The run under `rule`. The same scenario and rule give the same report.
    ///
    /// Panics with the seed if a claim is broken: that is a mistake of ours.
    pub fn run(&self, rule: MakeRule<'_>) -> Report {
        let outcome = world::run_with(&self.fleet(), &[rule], Checks::default());
        outcome.unwrap_or_else(|broken| panic!("{broken}"))
    }

    pub fn outcomes(&self, seeds: u64, rule: MakeRule<'_>) -> Vec<Outcome> {
        let mut sums = vec![Outcome::default(); self.streams.len()];
        for seed in 0..seeds {
            let report = Scenario { seed, ..self.clone() }.run(rule);
            for (sum, one) in sums.iter_mut().zip(&report.streams) {
                *sum = sum.plus(*one);
            }
        }
        sums
    }

    /// Each replica on a GPU of its own.
    fn fleet(&self) -> SimFleet {
        let kind: &'static Kind = &mig::kinds()[0];
        let whole = Geometry::empty(kind).with(kind.whole());
        let whole = whole.expect("a GPU has room for all of itself");
        let times = Arc::new(Times::of_curve(&self.curve, self.settings.max_batch));
        let replicas = self.replicas as usize;
        let replica =
            |gpu| SimReplica { model: 0, gpu, slice: 0, process: 0, times: Arc::clone(&times) };
        let stream = |(tenant, stream): (usize, &Stream)| Asking {
            model: 0,
            source: Source::Process(Process {
                rate_rps: stream.rate,
                spacing: Spacing::Poisson,
                shape: Shape::Flat,
            }),
            tenant: tenant as u32,
            class: stream.class,
            shapes: self.shapes,
        };
        let slow = |(from, factor): (Duration, f64)| {
            (0..replicas).map(move |gpu| Fault {
                at: from,
                lasts: self.duration,
                trouble: Trouble::SlowGpu { gpu, factor },
            })
        };
        SimFleet {
            models: vec![SimModel {
                name: "model".to_owned(),
                settings: self.settings,
                timeout: self.timeout.unwrap_or(self.settings.objective),
                target: 0.99,
                batching: Batching::Slo,
                memory_mib: 1,
                load: Load::INFERENCE,
                weights: self.streams.iter().map(|stream| stream.weight).collect(),
            }],
            gpus: vec![whole; replicas],
            replicas: (0..replicas).map(replica).collect(),
            streams: self.streams.iter().enumerate().map(stream).collect(),
            faults: self.slowdown.into_iter().flat_map(slow).collect(),
            terms: Terms {
                duration: self.duration,
                warmup: self.warmup,
                noise: self.noise,
                network: Duration::ZERO,
                executor: Duration::ZERO,
                delays: Delays::default(),
                seed: self.seed,
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Requests per second.
    pub rate: f64,
    pub weight: f64,
    pub class: Class,
}

impl Stream {
    pub fn plain(rate: f64) -> Self {
        Self { rate, weight: 1.0, class: Class::Interactive }
    }
}

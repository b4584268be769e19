//! What to simulate.

use std::time::Duration;

use policy::{
    dispatch::{Class, Settings},
    rule::Rule,
};

use crate::{curve::Curve, report::Outcome, run::run};

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the operator asked.
    pub settings: Settings,
    /// Replicas, all alike.
    pub replicas: u32,
    /// How fast they are.
    pub curve: Curve,
    /// Log-normal deviation of their times.
    pub noise: f64,
    /// From when, and by how much, they become slower.
    pub slowdown: Option<(Duration, f64)>,
    /// Shapes of inputs, as likely as each other; only equals share a batch.
    pub shapes: u32,
    /// One Poisson stream per tenant.
    pub streams: Vec<Stream>,
    /// How long requests arrive.
    pub duration: Duration,
    /// How much of the beginning is not counted.
    pub warmup: Duration,
    /// Names the run.
    pub seed: u64,
}

impl Scenario {
    /// One replica behind a router with the lead and the margin it uses; nobody calls yet.
    pub fn routed(curve: Curve, max_batch: u32, objective: Duration) -> Self {
        let (least, most) = (Duration::from_micros(300), Duration::from_millis(5));
        Self {
            settings: Settings {
                objective,
                max_batch,
                lead: Duration::from_micros(300),
                margin: (objective / 50).clamp(least, most),
            },
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

    /// The runs of `seeds` under `rule`, by stream.
    pub fn outcomes(&self, seeds: u64, rule: &dyn Fn() -> Box<dyn Rule>) -> Vec<Outcome> {
        let mut sums = vec![Outcome::default(); self.streams.len()];
        for seed in 0..seeds {
            let report = run(&Scenario { seed, ..self.clone() }, rule());
            for (sum, one) in sums.iter_mut().zip(&report.streams) {
                *sum = sum.plus(*one);
            }
        }
        sums
    }
}

/// One tenant's arrivals.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Requests per second.
    pub rate: f64,
    /// The tenant's weight.
    pub weight: f64,
    /// The class it asks for.
    pub class: Class,
}

impl Stream {
    /// An interactive stream of `rate` and weight 1.
    pub fn plain(rate: f64) -> Self {
        Self { rate, weight: 1.0, class: Class::Interactive }
    }
}

//! What is simulated: GPUs, the replicas on them, who asks, and what goes wrong.

use std::{sync::Arc, time::Duration};

use loadtest::plan::Source;
use mig::Geometry;
use policy::{
    dispatch::{Class, Settings},
    rule::Batching,
};
use simgpu::{Delays, Load, SimError, Speed};

use crate::curve::Curve;

#[derive(Clone, Debug)]
pub struct SimFleet {
    pub models: Vec<SimModel>,
    pub gpus: Vec<Geometry>,
    pub replicas: Vec<SimReplica>,
    pub streams: Vec<Stream>,
    pub faults: Vec<Fault>,
    pub terms: Terms,
}

impl SimFleet {
    pub fn declares_loads(&self) -> bool {
        self.models.iter().any(|model| model.load != Load::INFERENCE)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub duration: Duration,
    /// How much of the beginning is not counted.
    pub warmup: Duration,
    /// Log-normal deviation of batch times.
    pub noise: f64,
    /// One way between router and executor.
    pub network: Duration,
    /// What an executor adds to each batch: reading it, waking up, writing the answer.
    pub executor: Duration,
    pub delays: Delays,
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct SimModel {
    pub name: String,
    pub settings: Settings,
    /// How long after its arrival an answer is still wanted; at least the objective.
    pub timeout: Duration,
    /// The part of requests to be answered within the objective.
    pub target: f64,
    pub batching: Batching,
    pub memory_mib: u64,
    pub weights: Vec<f64>,
    pub load: Load,
}

/// A model in one process of one slice. Several may share the slice, and the process.
#[derive(Clone, Debug)]
pub struct SimReplica {
    pub model: usize,
    pub gpu: usize,
    pub slice: usize,
    /// Which of the slice's processes it is in; batches in one run one at a time.
    pub process: usize,
    pub times: Arc<Times>,
}

/// Batch times by rows and by how many processes are busy on the slice, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    by_busy: Vec<Vec<f64>>,
}

impl Times {
    pub fn of_curve(curve: &Curve, max_batch: u32) -> Self {
        let row = (1..=max_batch).map(|rows| curve.mean(rows).as_secs_f64() * 1e6);
        Self { by_busy: vec![row.collect()] }
    }

    pub fn of_speed(speed: &Speed, max_batch: u32, most_busy: u32) -> Result<Self, SimError> {
        let row = |busy: u32| {
            let times = (1..=max_batch).map(|rows| Ok(speed.batch_ms(rows, busy)? * 1e3));
            times.collect::<Result<Vec<f64>, SimError>>()
        };
        let by_busy = (1..=most_busy.max(1)).map(row).collect::<Result<_, SimError>>()?;
        Ok(Self { by_busy })
    }

    /// The time of `rows` while `busy` processes, its own among them, are busy on the slice.
    pub fn micros(&self, rows: u32, busy: u32) -> f64 {
        let by_rows = &self.by_busy[(busy.max(1) as usize).min(self.by_busy.len()) - 1];
        by_rows[(rows.max(1) as usize).min(by_rows.len()) - 1]
    }

    /// The same model, taking turns with others so that each has one turn of `turns`.
    pub(crate) fn in_turns(&self, turns: u32) -> Self {
        let slower = |micros: &f64| micros * f64::from(turns.max(1));
        let rows = self.by_busy.iter().map(|row| row.iter().map(slower).collect());
        Self { by_busy: rows.collect() }
    }

    pub fn max_batch(&self) -> u32 {
        u32::try_from(self.by_busy[0].len()).unwrap_or(u32::MAX)
    }

    /// What a warm-up alone on the slice would measure, at powers of two and the largest batch.
    pub fn warmup(&self) -> Vec<(u32, Duration)> {
        let max = self.max_batch();
        let doubled = std::iter::successors(Some(1_u32), |rows| rows.checked_mul(2));
        let sizes = doubled.take_while(|rows| *rows < max).chain([max]);
        sizes.map(|rows| (rows, Duration::from_secs_f64(self.micros(rows, 1) / 1e6))).collect()
    }
}

#[derive(Clone, Debug)]
pub struct Stream {
    pub model: usize,
    pub source: Source,
    pub tenant: u32,
    pub class: Class,
    /// Shapes of inputs, as likely as each other; only equals share a batch.
    pub shapes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub at: Duration,
    pub lasts: Duration,
    pub trouble: Trouble,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    /// A GPU is gone with all that runs on it; then its models are loaded again.
    DeadGpu {
        gpu: usize,
    },
    SlowGpu {
        gpu: usize,
        /// How many times as long.
        factor: f64,
    },
    /// A worker is silent while its executors run on: the router stops trusting them.
    LostWorker {
        gpu: usize,
    },
    SlowNetwork {
        /// By how much, one way.
        by: Duration,
    },
    StaleReports {
        by: Duration,
    },
    /// The router is gone with all it knew; callers are cut off and those who come find nobody.
    RouterRestart,
}

//! Training jobs on lent slices in virtual time, on the router's own decisions.
//!
//! From a trace of jobs, the slices there are and what inference takes of them over time, [`run`]
//! makes a [`Report`]. Time advances in rounds; in each the world is put before
//! [`policy::loan::decide`] and what it says is done. After every round the claims are checked that
//! must hold whatever the order: no slice has two owners, no gang is half started, and the service
//! that jobs attained is the service that slices gave.

mod claims;
mod inference;
mod life;
mod report;
mod world;

use std::time::Duration;

use policy::{
    loan::{Held, Rules, Slice},
    moment::Moment,
};

pub use self::report::{Report, Rise, Sample, TenantReport};

use self::world::Simulation;
use crate::jobs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceJob {
    pub submitted: Moment,
    /// How many GPUs it ran on. At least 1.
    pub gpus: u32,
    pub takes: Duration,
    pub tenant: usize,
}

pub fn whole_jobs(trace: &[jobs::TraceJob]) -> (Vec<TraceJob>, Vec<String>) {
    let mut tenants: Vec<String> = Vec::new();
    let mut whole = |job: &jobs::TraceJob| {
        let known = tenants.iter().position(|tenant| *tenant == job.tenant);
        let tenant = known.unwrap_or_else(|| {
            tenants.push(job.tenant.clone());
            tenants.len() - 1
        });
        let (submitted, takes) = (Moment::default() + job.submitted, job.runs.max(SECOND));
        TraceJob { submitted, gpus: job.gpus.ceil().max(1.0) as u32, takes, tenant }
    };
    let whole = trace.iter().map(&mut whole).collect();
    (whole, tenants)
}

/// Nothing takes no time at all.
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Setup<'a> {
    pub jobs: &'a [TraceJob],
    pub tenants: &'a [String],
    pub slices: Vec<Slice>,
    /// How many slices inference needs, from each moment on; before the first, none.
    pub inference: &'a [(Moment, u32)],
    pub rules: Rules,
    pub habits: Habits,
}

/// What is known of jobs, and what moving them costs.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    pub round: Duration,
    pub lengths_known: bool,
    pub elastic: bool,
    pub checkpoint_every: Duration,
    pub checkpoint_takes: Duration,
    /// How long a job takes to start, from its checkpoint or from nothing.
    pub start_takes: Duration,
    /// How far ahead inference is forecast, by what it needed in the same time before.
    pub forecast: Duration,
    pub reserve: u32,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            round: Duration::from_secs(60),
            lengths_known: false,
            elastic: false,
            checkpoint_every: Duration::from_secs(600),
            checkpoint_takes: Duration::from_secs(5),
            start_takes: Duration::from_secs(30),
            forecast: Duration::from_secs(600),
            reserve: 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{claim}, {} s after the start", at.micros() / 1_000_000)]
pub struct Broken {
    pub at: Moment,
    pub claim: String,
}

pub fn whole_gpus(count: u32) -> Vec<Slice> {
    let gpu = |gpu: u32| Slice {
        host: gpu / 8,
        gpu,
        compute: 7,
        share: 1.0,
        speed: 1.0,
        memory_mib: 80 << 10,
        cores: false,
        held: Held::Free,
    };
    (0..count).map(gpu).collect()
}

pub fn run(setup: Setup<'_>) -> Result<Report, Broken> {
    let mut simulation = Simulation::new(setup);
    while !simulation.is_over() {
        simulation.round()?;
        simulation.hopes()?;
    }
    Ok(simulation.report())
}

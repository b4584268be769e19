//! What is going on, as one value: the same facts for `/metrics`, `/admin/v1/state`, the terminal
//! and the console.

mod fleet;

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

pub use self::fleet::{
    GpuState, LaneState, Memory, Presence, RankView, ReplicaPhase, ReplicaState, Replicas,
    SliceState, WorkerState,
};

use crate::{
    auth::TenantView,
    cache,
    count::{Totals, recent::RecentView},
    dispatch,
    http::{ServerState, backend::Backend},
    jobs::{Brief, Counts},
    leader::LeadState,
    metrics::{self, Format},
    model::Model,
    place::{self, PinState, PlanState},
    registry::Registry,
    trace::SpanTotals,
};

/// Everything an operator may want to see at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// What is running.
    pub build: Build,
    /// Seconds since the router started.
    pub uptime_s: f64,
    /// Whether it can serve.
    pub ready: bool,
    /// Why not.
    pub problems: Vec<String>,
    /// Whether a stop has begun.
    pub draining: bool,
    /// The configuration in force.
    pub config: ConfigState,
    /// Who leads, if there are several routers.
    pub lead: LeadState,
    /// The models, in the order of the configuration.
    pub models: Vec<ModelState>,
    /// The workers that are known, by name.
    pub workers: Vec<WorkerState>,
    /// What was decided last about who is where.
    pub plan: PlanState,
    /// The replicas that operators have pinned, the oldest order first.
    #[serde(default)]
    pub pins: Vec<PinState>,
    /// The training jobs, and what is lent to them.
    pub jobs: JobsState,
    /// The tenants, in the order of the configuration; last, all others as one.
    pub tenants: Vec<TenantView>,
    /// What became of spans.
    pub spans: SpanTotals,
}

/// The program that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Its version.
    pub version: String,
    /// The revision it was built from.
    pub revision: String,
}

/// How the configuration was last loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigState {
    /// Configurations put in force since the start, that of the start included.
    pub generation: u64,
    /// Whether the last attempt to load one succeeded.
    pub last_reload_successful: bool,
    /// When the one in force was loaded, in seconds since 1970.
    pub loaded_at_s: f64,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelState {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether it can be asked: `ready`, `loading` or `unavailable`.
    pub availability: String,
    /// Why it cannot.
    pub reason: Option<String>,
    /// Its objective.
    pub slo_ms: f64,
    /// The share of requests that must be within it.
    pub slo_target: f64,
    /// The most rows of a batch.
    pub max_batch: u32,
    /// The rule that forms its batches.
    pub batching: String,
    /// How it has done lately.
    pub recent: RecentView,
    /// Every count since the start.
    pub totals: Totals,
    /// Its queue and its batch limits.
    pub dispatch: dispatch::View,
    /// Its replicas by state.
    pub replicas: Replicas,
    /// Its remembered answers, if it remembers.
    pub cache: Option<cache::View>,
}

/// Training jobs, and what is lent to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobsState {
    /// The programs a job may start; with none, there are no jobs.
    pub allow: Vec<String>,
    /// How many jobs are in each state.
    pub states: BTreeMap<String, usize>,
    /// How many slices are lent.
    pub loans: LoansState,
    /// What became of loans since the start.
    pub counts: Counts,
    /// Jobs that have not ended, then those that have, the newest of each first; at most a hundred.
    pub shown: Vec<Brief>,
}

/// Slices that are lent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoansState {
    /// To jobs that run or are being started.
    pub lent: usize,
    /// To jobs that were told to give them back and have time left for it.
    pub returning: usize,
    /// To jobs whose time for that is over.
    pub overdue: usize,
}

impl State {
    /// Every GPU of every worker.
    pub fn gpus(&self) -> impl Iterator<Item = &GpuState> {
        self.workers.iter().flat_map(|worker| &worker.gpus)
    }

    /// Every slice of every GPU.
    pub fn slices(&self) -> impl Iterator<Item = &SliceState> {
        self.gpus().flat_map(|gpu| &gpu.slices)
    }

    /// What is going on now.
    pub fn read(shared: &ServerState<Registry>, build: &Build) -> Self {
        Self::of(shared, build, &shared.backend.models())
    }

    fn of(shared: &ServerState<Registry>, build: &Build, models: &[Arc<Model>]) -> Self {
        let problems = shared.problems();
        let registry = &shared.backend;
        let (models, workers) = registry.states(models);
        let ordered = registry.orders().standing();
        let pins = match registry.standing().acts() {
            Some(_) => registry.plan().pins(&ordered),
            None => place::afar::pins(&ordered, &workers),
        };
        Self {
            build: build.clone(),
            uptime_s: registry.uptime().as_secs_f64(),
            ready: problems.is_empty(),
            problems,
            draining: shared.drain.is_draining(),
            config: registry.config_state(),
            lead: registry.standing().state(),
            models,
            workers,
            plan: registry.plan().state(),
            pins,
            jobs: registry.jobs_state(),
            tenants: shared.access.load().tenants(tokio::time::Instant::now()),
            spans: registry.spans().totals(),
        }
    }
}

/// The page for a scraper.
pub fn page(shared: &ServerState<Registry>, build: &Build, format: Format) -> Vec<u8> {
    let models = shared.backend.models();
    let counted: Vec<_> = models.iter().map(|model| model.dispatcher().metrics()).collect();
    metrics::write(&State::of(shared, build, &models), &counted, format)
}

//! What is going on, as one value: the same facts for `/metrics`, `/admin/v1/state`, the terminal
//! and the console.

use serde::{Deserialize, Serialize};

use crate::{
    auth::TenantView,
    cache, dispatch,
    http::{ServerState, backend::Backend},
    metrics::{self, Format, Totals},
    recent::RecentView,
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
    /// The models, in the order of the configuration.
    pub models: Vec<ModelState>,
    /// The GPUs and what is on them.
    pub gpus: Vec<GpuState>,
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

/// A model's replicas by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// On their way.
    pub starting: u32,
    /// Run to be warmed.
    pub warming: u32,
    /// Given batches.
    pub ready: u32,
    /// Finishing their last batches.
    pub draining: u32,
    /// Unable to serve.
    pub failed: u32,
}

impl Replicas {
    /// Counts one more.
    pub(crate) fn add(&mut self, replica: &ReplicaState) {
        match replica.state {
            ReplicaPhase::Starting | ReplicaPhase::Loading => self.starting += 1,
            ReplicaPhase::Warming => self.warming += 1,
            ReplicaPhase::Ready => self.ready += 1,
            ReplicaPhase::Failed => self.failed += 1,
        }
    }

    /// Each state's name and count.
    pub fn each(&self) -> [(&'static str, u32); 5] {
        let Self { starting, warming, ready, draining, failed } = *self;
        [
            ("starting", starting),
            ("warming", warming),
            ("ready", ready),
            ("draining", draining),
            ("failed", failed),
        ]
    }
}

/// One GPU, cut or whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuState {
    /// Its name in labels, `gpu0`.
    pub gpu: String,
    /// Its kind, `A100-80GB`.
    pub kind: String,
    /// Memory slices it has; positions count these.
    pub memory_slices: u8,
    /// Its slices, by position.
    pub slices: Vec<SliceState>,
}

/// One slice and what is on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SliceState {
    /// Its label, `gpu0:3g@4`.
    pub slice: String,
    /// Its profile, `3g.40gb`.
    pub profile: String,
    /// The memory slice it starts at.
    pub start: u8,
    /// Memory slices it takes.
    pub memory_slices: u8,
    /// Its executor's process, while there is one.
    pub pid: Option<u32>,
    /// How often the executor was started again.
    pub restarts: u32,
    /// The replicas on it.
    pub replicas: Vec<ReplicaState>,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaState {
    /// Its id.
    pub replica: u32,
    /// Its model.
    pub model: String,
    /// How far it is.
    pub state: ReplicaPhase,
    /// Why it failed.
    pub reason: Option<String>,
    /// Memory it takes, once known.
    pub memory_bytes: Option<u64>,
    /// How long its model took to load.
    pub load_ms: Option<f64>,
}

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaPhase {
    /// Its executor is starting.
    Starting,
    /// Its model is being loaded.
    Loading,
    /// Its model is being run to warm it.
    Warming,
    /// It is given batches.
    Ready,
    /// It cannot serve.
    Failed,
}

impl State {
    /// What is going on now.
    pub fn read(shared: &ServerState<Registry>, build: &Build) -> Self {
        let problems = shared.problems();
        let registry = &shared.backend;
        let (models, gpus) = registry.states();
        Self {
            build: build.clone(),
            uptime_s: registry.uptime().as_secs_f64(),
            ready: problems.is_empty(),
            problems,
            draining: shared.drain.is_draining(),
            config: registry.config_state(),
            models,
            gpus,
            tenants: shared.access.load().tenants(tokio::time::Instant::now()),
            spans: registry.spans().totals(),
        }
    }
}

/// The page for a scraper.
pub fn page(shared: &ServerState<Registry>, build: &Build, format: Format) -> Vec<u8> {
    let models = shared.backend.models();
    let counted: Vec<_> = models.iter().map(|model| model.dispatcher().metrics()).collect();
    metrics::write(&State::read(shared, build), &counted, format)
}

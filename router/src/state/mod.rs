//! What is going on, as one value: the same facts for `/metrics`, `/admin/v1/state`, the terminal
//! and the console.

mod fleet;
mod workers;

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serve::{
    auth::TenantView,
    doors::oip::{ServerState, backend::Backend},
    model::{Model, Served},
    trace::{Build, SpanTotals},
};

pub use self::fleet::{
    GpuState, LaneState, Memory, RankView, ReplicaPhase, ReplicaState, SliceState, WorkerState,
};
pub use crate::{
    fleet::Presence,
    jobs::{JobsState, LoansState},
    registry::ConfigState,
};
pub use serve::{
    count::latency::{LatencyView, Stretch},
    model::{Replicas, View as ModelState},
};

use crate::{
    fleet::View,
    leader::LeadState,
    plan::PlanState,
    progress::{PinState, reported},
    registry::Registry,
};

/// Everything an operator may want to see at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub build: Build,
    /// Seconds since the router started.
    pub uptime_s: f64,
    pub ready: bool,
    pub problems: Vec<String>,
    pub draining: bool,
    pub config: ConfigState,
    pub lead: LeadState,
    /// The models, in the order of the configuration.
    pub models: Vec<ModelState>,
    pub workers: Vec<WorkerState>,
    pub plan: PlanState,
    /// The replicas that operators have pinned, the oldest order first.
    #[serde(default)]
    pub pins: Vec<PinState>,
    pub jobs: JobsState,
    /// The tenants, in the order of the configuration; last, all others as one.
    pub tenants: Vec<TenantView>,
    pub spans: SpanTotals,
    #[serde(default)]
    pub log: LogState,
}

/// The log of the router's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogState {
    /// Lines dropped because stderr was read too slowly.
    pub dropped: u64,
}

impl State {
    pub fn gpus(&self) -> impl Iterator<Item = &GpuState> {
        self.workers.iter().flat_map(|worker| &worker.gpus)
    }

    pub fn slices(&self) -> impl Iterator<Item = &SliceState> {
        self.gpus().flat_map(|gpu| &gpu.slices)
    }

    pub fn read(shared: &ServerState<Registry>, build: &Build) -> Self {
        Self::of(shared, build, &shared.backend.models())
    }

    pub(crate) fn of(shared: &ServerState<Registry>, build: &Build, models: &[Arc<Model>]) -> Self {
        let problems = shared.problems();
        let registry = &shared.backend;
        let views = registry.fleet().views();
        let workers = shown(registry, &views);
        let ordered = registry.orders().standing();
        let pins = match registry.leadership().acts() {
            Some(_) => registry.plan().pins(&ordered),
            None => reported::pins(&ordered, &views),
        };
        let loans = registry.config_in_force().loans.as_ref().map(|loans| loans.allow.clone());
        Self {
            build: build.clone(),
            uptime_s: registry.uptime().as_secs_f64(),
            ready: problems.is_empty(),
            problems,
            draining: shared.drain.is_draining(),
            config: registry.config_state(),
            lead: registry.leadership().state(),
            models: with_replicas(models, &workers),
            workers,
            plan: registry.plan_state(),
            pins,
            jobs: registry.jobs().state(loans.unwrap_or_default(), registry.wall_ms()),
            tenants: shared.access.load().tenants(tokio::time::Instant::now()),
            spans: registry.spans().totals(),
            log: LogState { dropped: logging::dropped() },
        }
    }
}

/// Every worker, with who has its slices and how far its drain is.
pub(crate) fn workers(registry: &Registry) -> Vec<WorkerState> {
    shown(registry, &registry.fleet().views())
}

fn shown(registry: &Registry, views: &[View]) -> Vec<WorkerState> {
    let standing = registry.orders().standing();
    let acts = registry.leadership().acts().is_some();
    let lent = registry.jobs().lent();
    let worker = |view: &View| {
        let drain = standing.drains.get(&view.name).map(|drain| match acts {
            true => registry.plan().drain(&view.name, drain),
            false => reported::drain(view, &lent, drain),
        });
        workers::worker(view, &lent, drain)
    };
    views.iter().map(worker).collect()
}

/// The models, each with its replicas as the workers report them.
fn with_replicas(models: &[Arc<Model>], workers: &[WorkerState]) -> Vec<ModelState> {
    let mut replicas = HashMap::<&str, Replicas>::new();
    let slices = workers.iter().flat_map(|worker| &worker.gpus).flat_map(|gpu| &gpu.slices);
    for replica in slices.flat_map(|slice| &slice.replicas) {
        let of_model = replicas.entry(&replica.model).or_default();
        *match replica.state {
            ReplicaPhase::Starting | ReplicaPhase::Loading => &mut of_model.starting,
            ReplicaPhase::Warming => &mut of_model.warming,
            ReplicaPhase::Ready => &mut of_model.ready,
            ReplicaPhase::Draining => &mut of_model.draining,
            ReplicaPhase::Failed => &mut of_model.failed,
        } += 1;
    }
    let reported = |model: &str| replicas.get(model).copied().unwrap_or_default();
    models.iter().map(|model| model.view(reported(model.name()))).collect()
}

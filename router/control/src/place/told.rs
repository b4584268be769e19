//! What was decided, and why, for people.

use std::{collections::VecDeque, sync::Arc};

use config::Config;
use parking_lot::Mutex;
use policy::{
    demand::Forecast,
    moment::Moment,
    place::{Action, Decision, Placed, Snapshot},
};
use serde::{Deserialize, Serialize};

use super::{
    ordered::Ordered,
    outlook::{self, Outlook},
    world::{GpuKey, World},
};
use crate::replay;

/// Moves that are remembered.
const REMEMBERED: usize = 100;

/// The last decision of the placer, for whoever asks.
#[derive(Debug, Default)]
pub struct Planned {
    pub(super) last: Mutex<Last>,
}

#[derive(Debug, Default)]
pub(super) struct Last {
    state: PlanState,
    pub(super) ordered: Ordered,
    pub(super) from: Option<From>,
}

/// What it was decided from.
#[derive(Clone, Debug)]
pub(super) struct From {
    pub(super) snapshot: Arc<Snapshot>,
    /// The GPUs of the snapshot.
    pub(super) gpus: Arc<[GpuKey]>,
}

/// What was decided last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanState {
    /// When, in seconds since the router started.
    pub decided_at_s: f64,
    /// GPUs that have or shall have a replica.
    pub gpus_used: usize,
    /// What each model is expected to be asked for, and has.
    pub models: Vec<PlannedModel>,
    /// Every replica that shall be.
    pub replicas: Vec<PlannedReplica>,
    /// The last moves, newest first.
    pub moves: VecDeque<Move>,
    /// Moves since the start, by what they did: `start`, `stop` and `cut`.
    pub moved: Moved,
    /// What is not done, and why.
    pub refusals: Vec<String>,
    /// The median error of predicted slowdowns, as a part of what was seen; none before the first.
    pub interference_error: Option<f64>,
}

/// Moves since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Replicas asked for.
    pub start: u64,
    /// Replicas let go.
    pub stop: u64,
    /// GPUs cut otherwise.
    pub cut: u64,
}

/// A model's demand and what is provided for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedModel {
    /// Its name.
    pub model: String,
    /// Rows per second to be provided for.
    pub demand_rps: f64,
    /// What the slow forecast asks for by itself.
    pub floor_rps: f64,
    /// What decided: `rate`, `rising`, `queue`, `late`, `panic`, `floor`, `daily`,
    /// `patience`, `new`, `idle`.
    pub why: String,
    /// Rows per second that its replicas can serve in the end; absent while nothing is known.
    pub capacity_rps: Option<f64>,
}

/// A replica that shall be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedReplica {
    /// Its worker.
    pub worker: String,
    /// Its GPU there.
    pub gpu: u32,
    /// Its slice.
    pub position: String,
    /// Its model.
    pub model: String,
    /// Its processes.
    pub processes: u32,
    /// Whether an operator wants it there.
    #[serde(default)]
    pub pinned: bool,
    /// Why it is there.
    pub why: String,
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// When, in seconds since the router started.
    pub at_s: f64,
    /// What, for people.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What a decision's numbers mean.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    pub(super) config: &'a Config,
    pub(super) world: &'a World,
    pub(super) forecasts: &'a [Forecast],
    pub(super) error: Option<f64>,
    pub(super) at: Moment,
}

impl Planned {
    /// What was decided last.
    pub fn state(&self) -> PlanState {
        self.last.lock().state.clone()
    }

    /// All that it was decided from, to be decided again elsewhere; nothing before the first.
    pub fn dump(&self) -> Option<String> {
        let from = self.last.lock().from.clone();
        from.map(|from| replay::dump(&from.snapshot))
    }

    /// What would be decided if a model had another objective, beside what is; nothing if the model
    /// was in no decision yet. Plans twice: not for a thread that others wait for.
    pub fn with_objective(&self, model: &str, slo_ms: f64) -> Option<Outlook> {
        let From { snapshot, gpus } = self.last.lock().from.clone()?;
        outlook::of(&snapshot, &gpus, (model, slo_ms))
    }

    pub(super) fn record(
        &self,
        told: &Told<'_>,
        (snapshot, ordered): (Snapshot, Ordered),
        decision: &Decision,
    ) {
        let mut last = self.last.lock();
        last.ordered = ordered;
        let state = &mut last.state;
        state.decided_at_s = seconds(told.at);
        state.interference_error = told.error;
        state.models = told.models(&snapshot, decision);
        state.replicas = decision.target.placed.iter().map(|placed| told.replica(placed)).collect();
        state.gpus_used = outlook::gpus_used(&decision.target);
        let gpus: Arc<[GpuKey]> = told.world.sites.iter().map(|site| site.key.clone()).collect();
        state.refusals = decision.refusals.iter().map(|refusal| refusal.why.clone()).collect();
        for step in decision.now() {
            let what = outlook::what(&step.action, &snapshot, &gpus);
            match step.action {
                Action::Start { .. } => state.moved.start += 1,
                Action::Stop { .. } => state.moved.stop += 1,
                Action::Cut { .. } => state.moved.cut += 1,
            }
            state.moves.push_front(Move { at_s: seconds(told.at), what, why: step.why.clone() });
        }
        state.moves.truncate(REMEMBERED);
        last.from = Some(From { snapshot: Arc::new(snapshot), gpus });
    }
}

impl Told<'_> {
    fn models(&self, snapshot: &Snapshot, decision: &Decision) -> Vec<PlannedModel> {
        let each = self.config.models.iter().zip(self.forecasts).enumerate();
        each.map(|(index, (model, forecast))| {
            let mine = decision.target.placed.iter().filter(|placed| placed.model == index);
            let capacity_rps = mine.fold(0.0, |all, placed| all + placed.capacity_rps);
            let known = !snapshot.models[index].measured.is_empty();
            PlannedModel {
                model: model.name.clone(),
                demand_rps: forecast.rate_rps,
                floor_rps: forecast.floor_rps,
                why: forecast.why.word().to_owned(),
                capacity_rps: known.then_some(capacity_rps),
            }
        })
        .collect()
    }

    fn replica(&self, placed: &Placed) -> PlannedReplica {
        let (worker, gpu) = self.world.sites[placed.gpu].key.clone();
        PlannedReplica {
            worker,
            gpu,
            position: placed.position.to_string(),
            model: self.config.models[placed.model].name.clone(),
            processes: placed.processes,
            pinned: placed.pinned,
            why: placed.why.clone(),
        }
    }
}

fn seconds(moment: Moment) -> f64 {
    moment.since(Moment::default()).as_secs_f64()
}

//! What was decided, and why, for people.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use policy::{
    demand::Why,
    fleet::SliceId,
    place::{Action, Placed, Target},
    round::{Memory, OrderProgress, PinOrder, Plan, Round, World},
};
use serde::{Deserialize, Serialize};

use crate::replay;

const REMEMBERED: usize = 100;

#[derive(Debug, Default)]
pub struct Planned {
    pub(crate) last: Mutex<Last>,
}

#[derive(Debug, Default)]
pub(crate) struct Last {
    state: PlanState,
    pub(crate) progress: OrderProgress,
    pub(crate) pins: Vec<PinOrder>,
    pub(crate) from: Option<Decided>,
}

#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) world: Arc<World>,
    pub(crate) memory: Arc<Memory>,
    plan: Option<Arc<Plan>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanState {
    /// When, in seconds since the router started.
    pub decided_at_s: f64,
    pub gpus_used: usize,
    /// What each model is expected to be asked for, and has.
    pub models: Vec<PlannedModel>,
    pub replicas: Vec<PlannedReplica>,
    /// The last moves, newest first.
    pub moves: VecDeque<Move>,
    /// Moves since the start, by what they did: `start`, `stop` and `cut`.
    pub moved: Moved,
    pub refusals: Vec<String>,
    /// The median error of predicted slowdowns, as a part of what was seen; none before the first.
    pub interference_error: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub start: u64,
    pub stop: u64,
    pub cut: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedModel {
    /// Its name.
    pub model: String,
    /// Rows per second to be provided for.
    pub demand_rps: f64,
    pub floor_rps: f64,
    /// What decided: `rate`, `rising`, `queue`, `late`, `panic`, `floor`, `daily`,
    /// `patience`, `new`, `idle`.
    pub why: String,
    /// Rows per second that its replicas can serve, no more than was carried end to end; absent until
    /// that was measured.
    pub capacity_rps: Option<f64>,
    /// Rows per second that its slices add up to in the end, which the planner goes by; absent while
    /// nothing is known.
    #[serde(default)]
    pub slices_rps: Option<f64>,
    /// What bounds the capacity: `slices` or `router`; absent where the capacity is.
    #[serde(default)]
    pub limit: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedReplica {
    pub worker: String,
    pub gpu: u32,
    pub position: String,
    /// Its model.
    pub model: String,
    pub processes: u32,
    #[serde(default)]
    pub pinned: bool,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// When, in seconds since the router started.
    pub at_s: f64,
    pub what: String,
    pub why: String,
}

impl Planned {
    pub fn state(&self) -> PlanState {
        self.last.lock().state.clone()
    }

    /// All that the last plan was made from, to be decided again elsewhere; nothing before the first.
    pub fn dump(&self) -> Option<String> {
        let plan = self.last.lock().from.as_ref().and_then(|from| from.plan.clone());
        plan.map(|plan| replay::dump(&plan.snapshot))
    }

    pub(crate) fn served(&self) -> BTreeSet<SliceId> {
        let last = self.last.lock();
        let asked = last.from.iter().flat_map(|from| from.memory.place.asked().values().flatten());
        asked.map(|one| one.slice.clone()).collect()
    }

    /// Notes a round that ended `at_s` after the router started.
    pub(crate) fn record(&self, at_s: f64, world: World, memory: Arc<Memory>, round: &Round) {
        let mut last = self.last.lock();
        last.progress = round.progress.clone();
        last.pins = world.pins.clone();
        last.from = Some(Decided { world: Arc::new(world), memory, plan: round.plan.clone() });
        let state = &mut last.state;
        state.decided_at_s = at_s;
        let Some(plan) = &round.plan else { return };
        state.interference_error = round.interference_error;
        state.models = models(plan, round);
        state.replicas =
            plan.decision.target.placed.iter().map(|placed| replica(plan, placed)).collect();
        state.gpus_used = gpus_used(&plan.decision.target);
        state.refusals = plan.decision.refusals.iter().map(|one| one.why.clone()).collect();
        if !round.planned {
            return;
        }
        for step in plan.decision.now() {
            let what = what(&step.action, plan);
            match step.action {
                Action::Start { .. } => state.moved.start += 1,
                Action::Stop { .. } => state.moved.stop += 1,
                Action::Cut { .. } => state.moved.cut += 1,
            }
            state.moves.push_front(Move { at_s, what, why: step.why.clone() });
        }
        state.moves.truncate(REMEMBERED);
    }
}

fn models(plan: &Plan, round: &Round) -> Vec<PlannedModel> {
    let each = plan.snapshot.models.iter().zip(&round.forecasts).enumerate();
    each.map(|(index, (model, forecast))| {
        let mine = plan.decision.target.placed.iter().filter(|placed| placed.model == index);
        let capacity_rps = mine.fold(0.0, |all, placed| all + placed.capacity_rps);
        // A new model keeps what it has, which says nothing about what is asked of it.
        let is_new = forecast.why == Why::New;
        PlannedModel {
            model: model.name.clone(),
            demand_rps: if is_new { forecast.floor_rps } else { forecast.rate_rps },
            floor_rps: forecast.floor_rps,
            why: forecast.why.word().to_owned(),
            capacity_rps: None,
            slices_rps: (!model.measured.is_empty()).then_some(capacity_rps),
            limit: None,
        }
    })
    .collect()
}

fn replica(plan: &Plan, placed: &Placed) -> PlannedReplica {
    let gpu = &plan.gpus[placed.gpu];
    PlannedReplica {
        worker: gpu.worker.clone(),
        gpu: gpu.gpu,
        position: placed.position.to_string(),
        model: plan.snapshot.models[placed.model].name.clone(),
        processes: placed.processes,
        pinned: placed.pinned,
        why: placed.why.clone(),
    }
}

pub(crate) fn gpus_used(target: &Target) -> usize {
    let mut gpus: Vec<usize> = target.placed.iter().map(|placed| placed.gpu).collect();
    gpus.sort_unstable();
    gpus.dedup();
    gpus.len()
}

pub(crate) fn what(action: &Action, plan: &Plan) -> String {
    let snapshot = &plan.snapshot;
    let gpu = |index: usize| {
        let gpu = &plan.gpus[index];
        format!("{} gpu{}", gpu.worker, gpu.gpu)
    };
    let list = |positions: &[mig::Position]| {
        let texts: Vec<String> = positions.iter().map(ToString::to_string).collect();
        if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
    };
    match action {
        Action::Cut { gpu: index, destroy, create } => {
            format!("{}: {} in place of {}", gpu(*index), list(create), list(destroy))
        }
        Action::Start { gpu: index, position, model, .. } => {
            let name = &snapshot.models[*model].name;
            format!("{name} is loaded on {} {position}", gpu(*index))
        }
        Action::Stop { replica } => {
            for (index, on) in snapshot.gpus.iter().enumerate() {
                for slice in &on.slices {
                    let one = slice.replicas.iter().find(|one| one.id == *replica);
                    if let Some(one) = one {
                        let model = one.model.map(|model| &snapshot.models[model].name);
                        let name = model.map_or("a replica", String::as_str);
                        return format!("{name} leaves {} {}", gpu(index), slice.position);
                    }
                }
            }
            format!("replica {replica} leaves")
        }
    }
}

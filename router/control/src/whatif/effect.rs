//! What would be done, and what a decision does, for people.

use policy::{
    place::{Action, Decision, Snapshot},
    plan::{self, quickest_ms},
    round::Plan,
};
use serde::Serialize;

use crate::plan::{PlanState, gpus_used, what};

/// What would be decided without and with a change, from the same fleet and the same demand.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub before: Prospect,
    pub after: Prospect,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prospect {
    pub gpus_used: usize,
    /// What the model would have, if it is about one.
    #[serde(flatten)]
    pub provided: Option<Provided>,
    pub starts: usize,
    pub stops: usize,
    pub moves: Vec<Intended>,
    pub refusals: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Provided {
    pub replicas: usize,
    /// Rows per second they would serve within the objective; absent while nothing is known.
    pub capacity_rps: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Intended {
    pub what: String,
    pub why: String,
}

/// What an order would lead to, for every model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Consequence {
    #[serde(flatten)]
    pub comparison: Comparison,
    /// For each model.
    pub models: Vec<Affected>,
    /// What models would lack with it and do not without.
    pub lacking: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Affected {
    /// Its name.
    pub model: String,
    /// Rows per second to be provided for.
    pub demand_rps: f64,
    pub before: Provided,
    pub after: Provided,
}

/// What two plans would do for one model; nothing if neither has it.
pub(super) fn of_model(before: &Plan, after: &Plan, model: &str) -> Option<Comparison> {
    let index = before.snapshot.models.iter().position(|known| known.name == model)?;
    let prospect =
        |plan: &Plan| Prospect { provided: Some(provided(plan, index)), ..prospect(plan) };
    Some(Comparison { before: prospect(before), after: prospect(after) })
}

impl Consequence {
    /// With the demand that was seen. A plan's own is made up for a model that is new: as much as its
    /// replicas can serve, so that they stay.
    pub(super) fn with_demand_of(mut self, seen: &PlanState) -> Self {
        for one in &mut self.models {
            let planned = seen.models.iter().find(|planned| planned.model == one.model);
            one.demand_rps = planned.map_or(one.demand_rps, |planned| planned.demand_rps);
        }
        self
    }
}

/// What it would lead to if the first plan became the second.
pub(super) fn between(before: &Plan, after: &Plan) -> Consequence {
    let models = before.snapshot.models.iter().enumerate().map(|(index, model)| Affected {
        model: model.name.clone(),
        demand_rps: model.demand_rps,
        before: provided(before, index),
        after: provided(after, index),
    });
    let lacks = |decision: &Decision, model: usize| {
        decision.refusals.iter().any(|refusal| refusal.model == Some(model))
    };
    let lacking = after.decision.refusals.iter().filter_map(|refusal| {
        let model = refusal.model.filter(|model| !lacks(&before.decision, *model))?;
        let (name, why) = (&after.snapshot.models[model].name, &refusal.why);
        Some(if why.starts_with(name) { why.clone() } else { format!("{name}: {why}") })
    });
    Consequence {
        models: models.collect(),
        lacking: lacking.collect(),
        comparison: Comparison { before: prospect(before), after: prospect(after) },
    }
}

/// How long the quickest measured batch of a model takes, in milliseconds, if that is longer than its
/// objective leaves for one on every slice of the fleet.
pub(super) fn too_slow(snapshot: &Snapshot, model: usize) -> Option<f64> {
    // Alone: what neighbors cost may pass.
    let model = plan::Model { slowdown: 1.0, ..snapshot.models[model].clone() };
    let kinds: Vec<_> = snapshot.gpus.iter().map(|gpu| gpu.kind).collect();
    let batch_ms = quickest_ms(&model, &kinds)?;
    (batch_ms > snapshot.rules.latency_share * model.slo_ms + 1e-9).then_some(batch_ms)
}

fn provided(plan: &Plan, model: usize) -> Provided {
    let mine = || plan.decision.target.placed.iter().filter(|placed| placed.model == model);
    let known = !plan.snapshot.models[model].measured.is_empty();
    let keeps = too_slow(&plan.snapshot, model).is_none();
    Provided {
        replicas: mine().count(),
        capacity_rps: known.then(|| {
            let within = mine().filter(|_| keeps);
            within.fold(0.0, |all, placed| all + placed.capacity_rps)
        }),
    }
}

fn prospect(plan: &Plan) -> Prospect {
    let decision = &plan.decision;
    let is_start = |action: &Action| matches!(action, Action::Start { .. });
    let is_stop = |action: &Action| matches!(action, Action::Stop { .. });
    let count =
        |is: fn(&Action) -> bool| decision.steps.iter().filter(|step| is(&step.action)).count();
    let moves = decision
        .steps
        .iter()
        .map(|step| Intended { what: what(&step.action, plan), why: step.why.clone() });
    Prospect {
        gpus_used: gpus_used(&decision.target),
        provided: None,
        starts: count(is_start),
        stops: count(is_stop),
        moves: moves.collect(),
        refusals: decision.refusals.iter().map(|refusal| refusal.why.clone()).collect(),
    }
}

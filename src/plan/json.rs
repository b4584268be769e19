//! A plan as data for scripts.

use policy::plan::{Plan, Problem, Replica, Slice};
use serde::Serialize;

use super::Outcome;

#[derive(Serialize)]
struct PlanView<'a> {
    gpus_used: u32,
    slices: Vec<SliceView<'a>>,
    models: Vec<ModelView<'a>>,
    lower_bound_gpus: f64,
    seconds: f64,
    /// No plan under the same rules uses fewer; only when asked to explain.
    #[serde(skip_serializing_if = "Option::is_none")]
    proven_gpus: Option<u32>,
}

#[derive(Serialize)]
struct SliceView<'a> {
    gpu: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    profile: &'a str,
    start: u8,
    replicas: Vec<ReplicaView<'a>>,
}

#[derive(Serialize)]
struct ReplicaView<'a> {
    model: &'a str,
    batch: u32,
    processes: u32,
    capacity_rps: f64,
    predicted_latency_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_latency_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

#[derive(Serialize)]
struct ModelView<'a> {
    model: &'a str,
    demand_rps: f64,
    capacity_rps: f64,
}

#[derive(Serialize)]
struct OutcomeView<'a> {
    planner: &'a str,
    gpus_used: Option<u32>,
    slices: Option<usize>,
    models_slowed: Option<usize>,
    seconds: f64,
}

pub(super) fn plan(problem: &Problem, plan: &Plan, seconds: f64, explain: bool) -> String {
    let models = problem.models.iter().enumerate().map(|(index, model)| ModelView {
        model: &model.name,
        demand_rps: model.demand_rps,
        capacity_rps: rounded(plan.capacity_rps(index)),
    });
    line(&PlanView {
        gpus_used: plan.gpus_used,
        slices: plan.slices.iter().map(|slice| view(problem, slice, explain)).collect(),
        models: models.collect(),
        lower_bound_gpus: rounded(plan.lower_bound_gpus),
        seconds,
        proven_gpus: explain.then_some(plan.fewest_gpus()),
    })
}

/// One JSON array on one line: what each planner would use.
pub(super) fn comparison(outcomes: &[Outcome]) -> String {
    let view = |outcome: &Outcome| OutcomeView {
        planner: outcome.planner.name(),
        gpus_used: outcome.planned.as_ref().ok().map(|plan| plan.gpus_used),
        slices: outcome.planned.as_ref().ok().map(|plan| plan.slices.len()),
        models_slowed: outcome.planned.is_ok().then_some(outcome.slowed),
        seconds: outcome.seconds,
    };
    line(&outcomes.iter().map(view).collect::<Vec<_>>())
}

fn view<'a>(problem: &'a Problem, slice: &'a Slice, explain: bool) -> SliceView<'a> {
    let replica = |replica: &'a Replica| ReplicaView {
        model: &problem.models[replica.model].name,
        batch: replica.batch,
        processes: replica.processes,
        capacity_rps: rounded(replica.capacity_rps),
        predicted_latency_ms: rounded(replica.latency_ms),
        worst_latency_ms: explain.then(|| rounded(replica.worst_ms)),
        why: explain.then_some(replica.why.as_str()),
    };
    SliceView {
        gpu: slice.gpu,
        kind: explain.then_some(slice.kind),
        profile: &slice.position.profile().name,
        start: slice.position.start(),
        replicas: slice.replicas.iter().map(replica).collect(),
    }
}

/// Three decimals, which is more than was measured.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn line(view: &impl Serialize) -> String {
    serde_json::to_string(view).expect("strings, numbers and lists have a JSON form") + "\n"
}

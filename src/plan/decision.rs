//! A placement decision for people and for scripts.

use policy::place::{Action, Decision, Placed, Snapshot, Step};
use serde::Serialize;

/// The desired replicas, the steps, and what could not be placed.
pub(super) fn table(snapshot: &Snapshot, decision: &Decision) -> String {
    let mut text = String::from("desired replicas\n");
    for placed in &decision.target.placed {
        let label = mig::slice_label(placed.gpu, placed.position);
        let name = &snapshot.models[placed.model].name;
        let who = placed.replica.map_or_else(|| "new".to_owned(), |id| format!("replica {id}"));
        text += &format!("  {label}  {name}  {who}: {}\n", placed.why);
    }
    text += if decision.steps.is_empty() { "no steps\n" } else { "steps\n" };
    for step in &decision.steps {
        text += &format!("  {}. {}: {}\n", step.stage, words(snapshot, &step.action), step.why);
    }
    for unplaced in &decision.refusals {
        text += &format!("unplaced: {}\n", unplaced.why);
    }
    text
}

fn words(snapshot: &Snapshot, action: &Action) -> String {
    match action {
        Action::Cut { gpu, destroy, create } => {
            let list = |positions: &[mig::Position]| {
                positions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            let instead = match destroy.as_slice() {
                [] => String::new(),
                some => format!(" instead of {}", list(some)),
            };
            format!("reshape gpu {gpu}: create {}{instead}", list(create))
        }
        Action::Start { gpu, position, model, .. } => {
            let label = mig::slice_label(*gpu, *position);
            format!("start {} on {label}", snapshot.models[*model].name)
        }
        Action::Stop { replica } => format!("stop replica {replica}"),
    }
}

#[derive(Serialize)]
struct DecisionView<'a> {
    target: Vec<PlacedView<'a>>,
    steps: Vec<StepView<'a>>,
    refusals: Vec<&'a str>,
}

#[derive(Serialize)]
struct PlacedView<'a> {
    gpu: usize,
    position: String,
    model: &'a str,
    replica: Option<u64>,
    capacity_rps: f64,
    why: &'a str,
}

#[derive(Serialize)]
struct StepView<'a> {
    stage: u32,
    #[serde(flatten)]
    action: ActionView<'a>,
    why: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ActionView<'a> {
    Cut { gpu: usize, destroy: Vec<String>, create: Vec<String> },
    Start { gpu: usize, position: String, model: &'a str, batch: u32, processes: u32 },
    Stop { replica: u64 },
}

pub(super) fn json(snapshot: &Snapshot, decision: &Decision) -> String {
    let view = DecisionView {
        target: decision.target.placed.iter().map(|placed| placed_view(snapshot, placed)).collect(),
        steps: decision.steps.iter().map(|step| step_view(snapshot, step)).collect(),
        refusals: decision.refusals.iter().map(|refusal| refusal.why.as_str()).collect(),
    };
    serde_json::to_string(&view).expect("strings, numbers and lists have a JSON form") + "\n"
}

fn placed_view<'a>(snapshot: &'a Snapshot, placed: &'a Placed) -> PlacedView<'a> {
    PlacedView {
        gpu: placed.gpu,
        position: placed.position.to_string(),
        model: &snapshot.models[placed.model].name,
        replica: placed.replica,
        capacity_rps: placed.capacity_rps,
        why: &placed.why,
    }
}

fn step_view<'a>(snapshot: &'a Snapshot, step: &'a Step) -> StepView<'a> {
    let list = |positions: &[mig::Position]| positions.iter().map(ToString::to_string).collect();
    let action = match &step.action {
        Action::Cut { gpu, destroy, create } => {
            ActionView::Cut { gpu: *gpu, destroy: list(destroy), create: list(create) }
        }
        Action::Start { gpu, position, model, batch, processes, .. } => ActionView::Start {
            gpu: *gpu,
            position: position.to_string(),
            model: &snapshot.models[*model].name,
            batch: *batch,
            processes: *processes,
        },
        Action::Stop { replica } => ActionView::Stop { replica: *replica },
    };
    StepView { stage: step.stage, action, why: &step.why }
}

//! What would be done, and what a decision does, for people.

use policy::place::{Action, Decision, Snapshot, Target, place};
use serde::Serialize;

use super::world::GpuKey;

/// What would be decided without and with a change, from the same fleet and the same demand.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlook {
    /// Without it.
    pub before: Prospect,
    /// With it.
    pub after: Prospect,
}

/// What would be decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prospect {
    /// GPUs that would have a replica.
    pub gpus_used: usize,
    /// Replicas the model would have.
    pub replicas: usize,
    /// Rows per second they would serve within the objective; absent while nothing is known.
    pub capacity_rps: Option<f64>,
    /// Replicas of any model to be loaded.
    pub starts: usize,
    /// Replicas of any model to be let go.
    pub stops: usize,
    /// Every step there.
    pub moves: Vec<Intended>,
    /// What would not be done, and why.
    pub refusals: Vec<String>,
}

/// Something that would be done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Intended {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What another objective of a model would lead to; nothing if there is no such model.
pub(super) fn of(
    snapshot: &Snapshot,
    gpus: &[GpuKey],
    (model, slo_ms): (&str, f64),
) -> Option<Outlook> {
    let index = snapshot.models.iter().position(|known| known.name == model)?;
    let mut changed = snapshot.clone();
    changed.models[index].slo_ms = slo_ms;
    let prospect = |snapshot: &Snapshot| {
        let decision = place(snapshot);
        prospect(snapshot, gpus, (index, &decision))
    };
    Some(Outlook { before: prospect(snapshot), after: prospect(&changed) })
}

fn prospect(
    snapshot: &Snapshot,
    gpus: &[GpuKey],
    (model, decision): (usize, &Decision),
) -> Prospect {
    let mine = || decision.target.placed.iter().filter(|placed| placed.model == model);
    let known = !snapshot.models[model].measured.is_empty();
    let is_start = |action: &Action| matches!(action, Action::Start { .. });
    let is_stop = |action: &Action| matches!(action, Action::Stop { .. });
    let count =
        |is: fn(&Action) -> bool| decision.steps.iter().filter(|step| is(&step.action)).count();
    let moves = decision
        .steps
        .iter()
        .map(|step| Intended { what: what(&step.action, snapshot, gpus), why: step.why.clone() });
    Prospect {
        gpus_used: gpus_used(&decision.target),
        replicas: mine().count(),
        capacity_rps: known.then(|| mine().map(|placed| placed.capacity_rps).sum()),
        starts: count(is_start),
        stops: count(is_stop),
        moves: moves.collect(),
        refusals: decision.refusals.iter().map(|refusal| refusal.why.clone()).collect(),
    }
}

/// GPUs that have a replica in a target.
pub(super) fn gpus_used(target: &Target) -> usize {
    let mut gpus: Vec<usize> = target.placed.iter().map(|placed| placed.gpu).collect();
    gpus.sort_unstable();
    gpus.dedup();
    gpus.len()
}

/// What an action does.
pub(super) fn what(action: &Action, snapshot: &Snapshot, gpus: &[GpuKey]) -> String {
    let gpu = |index: usize| {
        let (worker, gpu) = &gpus[index];
        format!("{worker} gpu{gpu}")
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

//! The problem of a running router: its models, their measurements and demand, and its fleet.

use policy::{
    place::Snapshot,
    plan::{Gpus, Model, Problem},
};
use router::plan::PlanState;

/// What is asked instead of what the router has.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Instead {
    /// GPUs to plan on instead of the router's, as KIND=COUNT; may be repeated
    #[arg(long = "gpu", value_name = "KIND=N", value_parser = gpus, conflicts_with_all = ["file", "replay", "dump"])]
    pub(super) gpus: Vec<Gpus>,
    /// Demand of a model in rows/s instead of the forecast; may be repeated
    #[arg(long = "demand", value_name = "MODEL=ROWS", value_parser = demand, conflicts_with_all = ["file", "replay", "dump"])]
    pub(super) demand: Vec<(String, f64)>,
}

/// What can be planned, and what cannot, with why.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) problem: Problem,
    pub(super) left_out: Vec<String>,
}

fn gpus(text: &str) -> Result<Gpus, String> {
    let (name, count) = text.split_once('=').ok_or("give KIND=COUNT, such as A100-80GB=4")?;
    let kind = mig::device(name).map_err(|error| error.to_string())?;
    let count = count.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    let count = count.ok_or_else(|| format!("{text}: give a number of GPUs, 1 to 1000000"))?;
    Ok(Gpus { kind, count })
}

fn demand(text: &str) -> Result<(String, f64), String> {
    let (model, rows) = text.rsplit_once('=').ok_or("give MODEL=ROWS, such as digits=500")?;
    let rows = rows.parse().ok().filter(|rows: &f64| rows.is_finite() && *rows >= 0.0);
    let rows = rows.ok_or_else(|| format!("{text}: give rows per second, 0 or more"))?;
    Ok((model.to_owned(), rows))
}

/// The snapshot with the demand that was seen. Of a model that is new the router plans for as much as
/// its replicas can serve, so that they stay, whatever is asked of it.
pub(super) fn as_asked(mut snapshot: Snapshot, plan: &[u8]) -> Result<Snapshot, String> {
    let plan: PlanState = serde_json::from_slice(plan)
        .map_err(|error| format!("the response is not from a router of this version: {error}"))?;
    for model in &mut snapshot.models {
        let planned = plan.models.iter().find(|planned| planned.model == model.name);
        model.demand_rps = planned.map_or(model.demand_rps, |planned| planned.demand_rps);
    }
    Ok(snapshot)
}

/// What `snapshot` asks a planner, changed as `instead` says.
pub(super) fn problem(snapshot: &Snapshot, instead: &Instead) -> Result<Live, String> {
    for (name, _) in &instead.demand {
        if !snapshot.models.iter().any(|model| model.name == *name) {
            let known = snapshot.models.iter().map(|model| &*model.name);
            return Err(format!("no model named {name:?}{}", config::hint(name, known)));
        }
    }
    let mut left_out = Vec::new();
    let mut models = Vec::new();
    for model in &snapshot.models {
        let asked = instead.demand.iter().rfind(|(name, _)| *name == model.name);
        let model = Model {
            demand_rps: asked.map_or(model.demand_rps, |(_, rows)| *rows),
            ..model.clone()
        };
        if model.measured.is_empty() {
            let name = &model.name;
            left_out.push(format!(
                "{name} is left out: nothing of it is measured yet; a ready replica or profile_csv \
                 in its [[model]] gives measurements"
            ));
        } else if model.demand_rps > 0.0 || model.replicas_min > 0 {
            models.push(Model { replicas_min: model.replicas_min.max(1), ..model });
        } else {
            left_out.push(format!("{} is left out: no demand and replicas.min = 0", model.name));
        }
    }
    let fleet =
        if instead.gpus.is_empty() { fleet(snapshot, &mut left_out) } else { instead.gpus.clone() };
    match (models.as_slice(), fleet.as_slice()) {
        ([], _) => Err(with("there is no model to plan for", &left_out)),
        (_, []) => Err(with("the router knows no GPU; give some with --gpu KIND=N", &left_out)),
        _ => Ok(Live { problem: Problem { models, fleet, rules: snapshot.rules }, left_out }),
    }
}

fn fleet(snapshot: &Snapshot, left_out: &mut Vec<String>) -> Vec<Gpus> {
    let mut fleet: Vec<Gpus> = Vec::new();
    for gpu in snapshot.gpus.iter().filter(|gpu| gpu.healthy) {
        match fleet.iter_mut().find(|known| known.kind.name == gpu.kind.name) {
            Some(known) => known.count += 1,
            None => fleet.push(Gpus { kind: gpu.kind, count: 1 }),
        }
    }
    let failed = snapshot.gpus.iter().filter(|gpu| !gpu.healthy).count();
    if failed > 0 {
        left_out.push(format!("{failed} GPUs are left out: failed, leaving or drained"));
    }
    fleet
}

fn with(what: &str, left_out: &[String]) -> String {
    left_out.iter().fold(what.to_owned(), |text, line| format!("{text}\n{line}"))
}

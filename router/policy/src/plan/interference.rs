//! Plans that still keep their objectives once neighbours are felt.
//!
//! Who is whose neighbour is known only when a plan is bound. So a plan is made as if nobody felt
//! anybody, and what each replica would then feel is predicted. A model that would miss is expected
//! to be that much slower from the start, and the plan is made again. Expectations only rise, and
//! the last are those of the worst neighbours there can be, so it ends.

use std::collections::{BTreeMap, BTreeSet};

use super::{Plan, PlanError, Problem, Slice, solve_blind};
use crate::interference::{Runner, Scene};

/// How often it is planned anew by what was predicted, before the worst is expected.
const ROUNDS: u32 = 4;

pub(super) fn solve(problem: &Problem, current: &[Slice]) -> Result<Plan, PlanError> {
    let mut expected = problem.clone();
    for round in 0..=ROUNDS {
        let mut plan = solve_blind(&expected, current)?;
        let felt = felt(problem, &plan);
        let late = late(problem, &plan, &felt);
        if late.is_empty() {
            explain(&mut plan, &felt);
            return Ok(plan);
        }
        for (index, model) in expected.models.iter_mut().enumerate() {
            if round + 1 == ROUNDS {
                model.slowdown = model.slowdown.max(worst(problem, index));
            } else if late.contains(&index) {
                let of_model = |slowed: &&Slowed| slowed.model == index;
                let most = felt.iter().filter(of_model).map(|slowed| slowed.by).fold(1.0, f64::max);
                model.slowdown = model.slowdown.max(most * problem.models[index].slowdown);
            }
        }
    }
    solve_blind(&expected, current)
}

/// The models that would miss their objective or fall short of their demand, by what their
/// neighbours do to them.
pub fn misses(problem: &Problem, plan: &Plan) -> Vec<usize> {
    late(problem, plan, &felt(problem, plan)).into_iter().collect()
}

/// How much longer than alone a replica takes.
#[derive(Clone, Copy, Debug)]
struct Slowed {
    slice: usize,
    model: usize,
    by: f64,
}

/// What every replica feels of its neighbours.
fn felt(problem: &Problem, plan: &Plan) -> Vec<Slowed> {
    if problem.models.iter().all(|model| model.load == Default::default()) {
        return Vec::new();
    }
    let mut capacity_rps = vec![0.0; problem.models.len()];
    for replica in plan.slices.iter().flat_map(|slice| &slice.replicas) {
        capacity_rps[replica.model] += replica.capacity_rps;
    }
    let runner = |model: usize, slice: &Slice| Runner {
        model: model as u32,
        compute: compute(slice),
        busy: (problem.models[model].demand_rps / capacity_rps[model].max(1e-9)).min(1.0)
            / slice.replicas.len() as f64,
        load: problem.models[model].load,
    };
    let mut felt = Vec::new();
    let indices: Vec<usize> = (0..plan.slices.len()).collect();
    for on_gpu in indices.chunk_by(|a, b| plan.slices[*a].gpu == plan.slices[*b].gpu) {
        for index in on_gpu {
            let others: Vec<Runner> = on_gpu
                .iter()
                .filter(|other| *other != index)
                .map(|other| &plan.slices[*other])
                .flat_map(|slice| slice.replicas.iter().map(|one| runner(one.model, slice)))
                .collect();
            let slice = &plan.slices[*index];
            for replica in &slice.replicas {
                let own = runner(replica.model, slice);
                let by = Scene { own, others: &others }.predicted(&problem.rules.gains);
                felt.push(Slowed { slice: *index, model: replica.model, by });
            }
        }
    }
    felt
}

fn compute(slice: &Slice) -> f64 {
    let whole = mig::device(slice.kind).map_or(u8::MAX, |kind| kind.compute_slices);
    f64::from(slice.position.profile().compute_slices) / f64::from(whole)
}

/// The models for which what was planned, slowed as predicted, is not enough.
///
/// A replica that was planned to be slow has room for neighbours already.
fn late(problem: &Problem, plan: &Plan, felt: &[Slowed]) -> BTreeSet<usize> {
    let by: BTreeMap<(usize, usize), f64> =
        felt.iter().map(|slowed| ((slowed.slice, slowed.model), slowed.by)).collect();
    let mut served = vec![0.0; problem.models.len()];
    let mut late = BTreeSet::new();
    for (index, slice) in plan.slices.iter().enumerate() {
        for replica in &slice.replicas {
            let model = &problem.models[replica.model];
            let room = replica.slowdown / model.slowdown;
            let by = by.get(&(index, replica.model)).copied().unwrap_or(1.0);
            let slowed = (by / room).max(1.0);
            served[replica.model] += replica.capacity_rps / slowed;
            let limit_ms = 2.0 * problem.rules.latency_share * model.slo_ms;
            if replica.worst_ms * slowed > limit_ms * (1.0 + 1e-9) {
                late.insert(replica.model);
            }
        }
    }
    for (index, model) in problem.models.iter().enumerate() {
        if served[index] < model.demand_rps * (1.0 - 1e-9) {
            late.insert(index);
        }
    }
    late
}

/// The slowdown beside as many as there can be of what is felt most.
fn worst(problem: &Problem, model: usize) -> f64 {
    let seventh = |model: usize| Runner {
        model: model as u32,
        compute: 1.0 / 7.0,
        busy: 1.0,
        load: problem.models[model].load,
    };
    let beside = |other: usize| {
        let others = [seventh(other); 6];
        Scene { own: seventh(model), others: &others }.predicted(&problem.rules.gains)
    };
    let most = (0..problem.models.len()).map(beside).fold(1.0, f64::max);
    most * problem.models[model].slowdown
}

fn explain(plan: &mut Plan, felt: &[Slowed]) {
    for slowed in felt.iter().filter(|slowed| slowed.by > 1.0) {
        let replicas = plan.slices[slowed.slice].replicas.iter_mut();
        for replica in replicas.filter(|replica| replica.model == slowed.model) {
            let percent = (slowed.by - 1.0) * 100.0;
            replica.why += &format!("; its neighbors slow it by {percent:.1} %");
        }
    }
}

//! MIG-Serving's first step, restated: GPU by GPU, the configuration with the highest score.
//!
//! The score of a configuration is the sum over its slices of what the slice adds to its model's
//! completion, weighted by how incomplete that model still is.

use super::{
    super::{Plan, PlanError, Problem, hardware::Shape, problem::Ground},
    bins::Bins,
};

pub(super) fn plan(problem: &Problem) -> Result<Plan, PlanError> {
    let ground = Ground::new(problem)?;
    let mut bins = Bins::new(problem, &ground);
    let mut state =
        State { served: vec![0.0; problem.models.len()], replicas: vec![0; problem.models.len()] };
    for gpu in 0..bins.gpus.len() {
        if state.complete(problem) {
            break;
        }
        let pool = bins.gpus[gpu].pool;
        let shapes = ground.hardware.shapes.iter().filter(|shape| shape.pool == pool);
        let mut best: Option<(f64, &Shape, Vec<Option<usize>>)> = None;
        for shape in shapes {
            let (score, models) = configure(&bins, shape, &state);
            if score > best.as_ref().map_or(1e-12, |(most, ..)| *most) {
                best = Some((score, shape, models));
            }
        }
        let Some((_, shape, models)) = best else { continue };
        for ((position, slot), model) in shape.layout().iter().zip(models) {
            let Some(model) = model else { continue };
            if bins.put(gpu, *slot, model, &[position.start()]) {
                state.served[model] += bins.rps(model, *slot);
                state.replicas[model] += 1;
            }
        }
    }
    if state.complete(problem) { Ok(bins.into_plan()) } else { Err(bins.too_small()) }
}

#[derive(Clone)]
struct State {
    served: Vec<f64>,
    replicas: Vec<u32>,
}

impl State {
    fn complete(&self, problem: &Problem) -> bool {
        let models = problem.models.iter().enumerate();
        models.into_iter().all(|(model, _)| self.missing(problem, model) <= 1e-9)
    }

    /// The part of a model that is not served yet; a missing replica counts as a whole one.
    fn missing(&self, problem: &Problem, model: usize) -> f64 {
        let wanted = &problem.models[model];
        if self.replicas[model] < wanted.replicas_min {
            return 1.0;
        }
        1.0 - (self.served[model] / wanted.demand_rps.max(1e-9)).min(1.0)
    }
}

/// The best model for each slice of a shape, largest slice first, and the score of all.
fn configure(bins: &Bins<'_>, shape: &Shape, state: &State) -> (f64, Vec<Option<usize>>) {
    let mut state = state.clone();
    let layout = shape.layout();
    let mut models = vec![None; layout.len()];
    let mut order: Vec<usize> = (0..layout.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(layout[*index].0.profile().memory_slices));
    let mut total = 0.0;
    for index in order {
        let slot = layout[index].1;
        let mut best: Option<(f64, usize)> = None;
        for (model, wanted) in bins.problem.models.iter().enumerate() {
            let missing = state.missing(bins.problem, model);
            let added = (bins.rps(model, slot) / wanted.demand_rps.max(1e-9)).min(missing);
            let score = missing * added;
            if score > best.map_or(1e-12, |(most, _)| most) {
                best = Some((score, model));
            }
        }
        if let Some((score, model)) = best {
            total += score;
            state.served[model] += bins.rps(model, slot);
            state.replicas[model] += 1;
            models[index] = Some(model);
        }
    }
    (total, models)
}

//! Whole GPUs, first fit and best fit.

use super::{
    super::{Plan, PlanError, Problem, problem::Ground},
    bins::Bins,
};

/// A slice wanted for `rate_rps` of a model.
pub(super) struct Segment {
    pub(super) model: usize,
    pub(super) rate_rps: f64,
    size: u8,
}

/// A whole GPU at a time for each model.
pub(super) fn whole_gpus(problem: &Problem) -> Result<Plan, PlanError> {
    let ground = Ground::new(problem)?;
    let mut bins = Bins::new(problem, &ground);
    for (model, wanted) in problem.models.iter().enumerate() {
        let mut rest = wanted.demand_rps;
        let mut replicas = 0;
        for gpu in 0..bins.gpus.len() {
            if rest <= 1e-9 && replicas >= wanted.replicas_min {
                break;
            }
            let whole = bins.gpus[gpu].geometry.kind().whole().profile();
            let slot = bins.slots(gpu, model).find(|slot| bins.profile(*slot) == whole);
            let Some(slot) = slot else { continue };
            if bins.put(gpu, slot, model, &[0]) {
                rest -= bins.rps(model, slot);
                replicas += 1;
            }
        }
        if rest > 1e-9 || replicas < wanted.replicas_min {
            return Err(bins.too_small());
        }
    }
    Ok(bins.into_plan())
}

/// Each model's slices on the first GPU with room.
pub(super) fn first_fit(problem: &Problem) -> Result<Plan, PlanError> {
    let ground = Ground::new(problem)?;
    let mut bins = Bins::new(problem, &ground);
    for segment in segments(&bins) {
        let gpus: Vec<usize> = (0..bins.gpus.len()).collect();
        if !put(&mut bins, &segment, &gpus) {
            return Err(bins.too_small());
        }
    }
    Ok(bins.into_plan())
}

/// The largest slices first, each on the GPU with least room.
pub(super) fn best_fit(problem: &Problem) -> Result<Plan, PlanError> {
    let ground = Ground::new(problem)?;
    let mut bins = Bins::new(problem, &ground);
    let mut segments = segments(&bins);
    segments.sort_by_key(|segment| (std::cmp::Reverse(segment.size), segment.model));
    for segment in segments {
        let mut gpus: Vec<usize> = (0..bins.gpus.len()).collect();
        gpus.sort_by_key(|gpu| (std::cmp::Reverse(bins.compute(*gpu)), *gpu));
        if !put(&mut bins, &segment, &gpus) {
            return Err(bins.too_small());
        }
    }
    Ok(bins.into_plan())
}

/// Puts a segment on the first of `gpus` that has room for its smallest sufficient slice.
fn put(bins: &mut Bins<'_>, segment: &Segment, gpus: &[usize]) -> bool {
    gpus.iter().any(|gpu| {
        let Some(slot) = smallest(bins, *gpu, segment.model, segment.rate_rps) else {
            return false;
        };
        let starts = &bins.profile(slot).starts;
        bins.put(*gpu, slot, segment.model, starts)
    })
}

/// The smallest slot of a GPU's kind that serves `rate_rps`.
pub(super) fn smallest(bins: &Bins<'_>, gpu: usize, model: usize, rate_rps: f64) -> Option<usize> {
    let enough = |slot: &usize| bins.rps(model, *slot) >= rate_rps - 1e-9;
    bins.slots(gpu, model).filter(enough).min_by_key(|slot| {
        let profile = bins.profile(*slot);
        (profile.memory_slices, profile.compute_slices)
    })
}

/// What each model wants, measured on the first GPU that can serve it: one slice if one is enough,
/// else the slices with most requests per memory slice, and the smallest sufficient for the rest.
pub(super) fn segments(bins: &Bins<'_>) -> Vec<Segment> {
    let mut segments = Vec::new();
    for (model, wanted) in bins.problem.models.iter().enumerate() {
        let gpu = (0..bins.gpus.len()).find(|gpu| bins.slots(*gpu, model).next().is_some());
        let Some(gpu) = gpu else { continue };
        let value =
            |slot: usize| bins.rps(model, slot) / f64::from(bins.profile(slot).memory_slices);
        let best = bins.slots(gpu, model).max_by(|a, b| value(*a).total_cmp(&value(*b)));
        let Some(best) = best else { continue };
        let mut rest = wanted.demand_rps;
        let mut count = 0;
        while rest > 1e-9 || count < wanted.replicas_min {
            let slot = smallest(bins, gpu, model, rest.max(0.0)).unwrap_or(best);
            let rate_rps = rest.clamp(0.0, bins.rps(model, slot));
            segments.push(Segment { model, rate_rps, size: bins.profile(slot).memory_slices });
            rest -= rate_rps;
            count += 1;
        }
    }
    segments
}

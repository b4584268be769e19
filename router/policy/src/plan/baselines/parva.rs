//! ParvaGPU's two steps, restated.
//!
//! First each model gets as many slices as it fills of the size with most requests per compute slice,
//! and the smallest that serves the rest; all are put on GPUs, largest first. Then GPUs that are at
//! most half used, from the last, are broken into small slices that fill the holes of the others.

use super::{
    super::{Plan, PlanError, Problem, Rules, problem::Ground},
    bins::Bins,
};

/// The most processes it puts on a slice.
const PROCESSES: u32 = 3;
/// A GPU with at most this many compute slices in use is broken up.
const HALF: u32 = 4;

pub(super) fn plan(problem: &Problem) -> Result<Plan, PlanError> {
    let max_processes = problem.rules.max_processes.min(PROCESSES);
    let problem = Problem { rules: Rules { max_processes, ..problem.rules }, ..problem.clone() };
    let ground = Ground::new(&problem)?;
    let mut bins = Bins::new(&problem, &ground);
    for (model, slot) in segments(&bins) {
        let mut gpus: Vec<usize> = (0..bins.gpus.len()).collect();
        gpus.sort_by_key(|gpu| (std::cmp::Reverse(bins.compute(*gpu)), *gpu));
        let rate_rps = bins.rps(model, slot);
        if !gpus.into_iter().any(|gpu| put(&mut bins, gpu, model, slot, rate_rps)) {
            return Err(bins.too_small());
        }
    }
    for gpu in (1..bins.gpus.len()).rev() {
        if (1..=HALF).contains(&bins.compute(gpu)) {
            break_up(&mut bins, gpu);
        }
    }
    Ok(bins.into_plan())
}

/// Model and type of slot of every slice wanted, largest first.
fn segments(bins: &Bins<'_>) -> Vec<(usize, usize)> {
    let mut segments = Vec::new();
    for (model, wanted) in bins.problem.models.iter().enumerate() {
        let gpu = (0..bins.gpus.len()).find(|gpu| bins.slots(*gpu, model).next().is_some());
        let Some(gpu) = gpu else { continue };
        let value =
            |slot: &usize| bins.rps(model, *slot) / f64::from(bins.profile(*slot).compute_slices);
        let plain = |slot: &usize| !bins.profile(*slot).double_memory();
        let best = bins
            .slots(gpu, model)
            .filter(plain)
            .reduce(|best, slot| if value(&slot) > value(&best) { slot } else { best });
        let Some(best) = best else { continue };
        let full = (wanted.demand_rps / bins.rps(model, best) - 1e-9).floor().max(0.0);
        let rest = wanted.demand_rps - full * bins.rps(model, best);
        segments.extend(std::iter::repeat_n((model, best), full as usize));
        let enough = |slot: &usize| bins.rps(model, *slot) >= rest - 1e-9 && plain(slot);
        let size = |slot: &usize| bins.profile(*slot).compute_slices;
        let last = bins.slots(gpu, model).filter(enough).min_by_key(size).unwrap_or(best);
        let count = wanted.replicas_min.saturating_sub(full as u32).max(1);
        segments.extend(std::iter::repeat_n((model, last), count as usize));
    }
    segments.sort_by_key(|(model, slot)| {
        (std::cmp::Reverse(bins.profile(*slot).compute_slices), *model)
    });
    segments
}

/// Puts a slice of the type wanted, or on another kind of GPU the smallest that serves as much.
fn put(bins: &mut Bins<'_>, gpu: usize, model: usize, slot: usize, rate_rps: f64) -> bool {
    let slot = if bins.slots(gpu, model).any(|own| own == slot) {
        Some(slot)
    } else {
        let enough = |slot: &usize| bins.rps(model, *slot) >= rate_rps - 1e-9;
        let size = |slot: &usize| bins.profile(*slot).compute_slices;
        bins.slots(gpu, model).filter(enough).min_by_key(size)
    };
    slot.is_some_and(|slot| {
        let starts = starts(bins.profile(slot).compute_slices, &bins.profile(slot).starts);
        bins.put(gpu, slot, model, &starts)
    })
}

/// The order in which it tries starts, which keeps room for large slices.
fn starts(compute_slices: u8, legal: &[u8]) -> Vec<u8> {
    let preferred: &[u8] = match compute_slices {
        3 => &[4],
        2 => &[0, 4, 2],
        1 => &[0, 6, 4, 1, 2, 3, 5],
        _ => &[0],
    };
    preferred.iter().copied().filter(|start| legal.contains(start)).collect()
}

/// Moves what is on `gpu` into holes of the others as one- and two-compute slices, or does nothing.
fn break_up(bins: &mut Bins<'_>, gpu: usize) {
    let before = bins.gpus.clone();
    let held = std::mem::take(&mut bins.gpus[gpu].held);
    bins.gpus[gpu].geometry = mig::Geometry::empty(bins.gpus[gpu].geometry.kind());
    for (_, model, slot) in held {
        let others: f64 = before
            .iter()
            .flat_map(|gpu| &gpu.held)
            .filter(|(_, other, _)| *other == model)
            .map(|(_, _, slot)| bins.rps(model, *slot))
            .sum::<f64>()
            - bins.rps(model, slot);
        let mut rest = (bins.problem.models[model].demand_rps - others).max(1e-6);
        while rest > 0.0 {
            let Some(moved) = fill_hole(bins, gpu, model, rest) else {
                bins.gpus = before;
                return;
            };
            rest -= moved;
        }
    }
}

fn fill_hole(bins: &mut Bins<'_>, emptied: usize, model: usize, rest: f64) -> Option<f64> {
    let gpus = (0..bins.gpus.len()).filter(|gpu| *gpu != emptied);
    let used: Vec<usize> = gpus.filter(|gpu| bins.compute(*gpu) > 0).collect();
    for gpu in used {
        let mut small: Vec<usize> = bins
            .slots(gpu, model)
            .filter(|slot| bins.profile(*slot).compute_slices <= 2)
            .filter(|slot| !bins.profile(*slot).double_memory())
            .collect();
        // The smaller first if it is enough, else the larger.
        small.sort_by_key(|slot| {
            let size = bins.profile(*slot).compute_slices;
            let enough = bins.rps(model, *slot) >= rest;
            (!enough, if enough { size } else { u8::MAX - size })
        });
        for slot in small {
            let rate_rps = bins.rps(model, slot);
            if put(bins, gpu, model, slot, rate_rps) {
                return Some(rate_rps);
            }
        }
    }
    None
}

//! Fragmentation gradient descent, restated for MIG.
//!
//! The fragmentation of a GPU is, over all profiles weighted by how often they are wanted, the free
//! memory slices that no legal start of the profile covers. Each slice goes to the GPU and the start
//! where that grows least.

use std::collections::{BTreeMap, BTreeSet};

use mig::{Geometry, Position};

use super::{
    super::{Plan, PlanError, Problem, problem::Ground},
    bins::Bins,
    fit::{Segment, segments, smallest},
};

pub(super) fn plan(problem: &Problem) -> Result<Plan, PlanError> {
    let ground = Ground::new(problem)?;
    let mut bins = Bins::new(problem, &ground);
    let segments = segments(&bins);
    let popular = popularity(&bins, &segments);
    // GPUs cut alike are the same choice; the first of them is taken.
    let mut alike: BTreeMap<(usize, String), BTreeSet<usize>> = BTreeMap::new();
    for (index, gpu) in bins.gpus.iter().enumerate() {
        alike.entry((gpu.pool, String::new())).or_default().insert(index);
    }
    for segment in segments {
        let mut best: Option<(f64, usize, usize, u8)> = None;
        for gpu in alike.values().filter_map(|gpus| gpus.first()) {
            let Some(slot) = smallest(&bins, *gpu, segment.model, segment.rate_rps) else {
                continue;
            };
            for position in bins.profile(slot).positions() {
                let geometry = &bins.gpus[*gpu].geometry;
                let Ok(after) = geometry.with(position) else { continue };
                let grows = fragmentation(&after, &popular) - fragmentation(geometry, &popular);
                // An empty GPU is taken only if no other has room.
                let grows = if geometry.positions().is_empty() { grows + 1e6 } else { grows };
                if best.is_none_or(|(least, ..)| grows < least - 1e-9) {
                    best = Some((grows, *gpu, slot, position.start()));
                }
            }
        }
        let Some((_, gpu, slot, start)) = best else { return Err(bins.too_small()) };
        let key = |bins: &Bins<'_>| (bins.gpus[gpu].pool, bins.gpus[gpu].geometry.to_string());
        if let Some(gpus) = alike.get_mut(&key(&bins)) {
            gpus.remove(&gpu);
        }
        bins.put(gpu, slot, segment.model, &[start]);
        alike.entry(key(&bins)).or_default().insert(gpu);
    }
    Ok(bins.into_plan())
}

/// The part of the wanted slices that each type of slot is, on the first kind that serves the model.
fn popularity(bins: &Bins<'_>, segments: &[Segment]) -> BTreeMap<&'static str, f64> {
    let mut popular = BTreeMap::new();
    for segment in segments {
        let slots = (0..bins.gpus.len())
            .find_map(|gpu| smallest(bins, gpu, segment.model, segment.rate_rps));
        if let Some(slot) = slots {
            let name = bins.profile(slot).name.as_str();
            *popular.entry(name).or_insert(0.0) += 1.0 / segments.len() as f64;
        }
    }
    popular
}

fn fragmentation(geometry: &Geometry, popular: &BTreeMap<&'static str, f64>) -> f64 {
    let kind = geometry.kind();
    let taken = |slice: u8| {
        geometry.positions().iter().any(|held| held.start() <= slice && slice < held.end())
    };
    let free: Vec<u8> = (0..kind.memory_slices).filter(|slice| !taken(*slice)).collect();
    let mut total = 0.0;
    for profile in &kind.profiles {
        let Some(weight) = popular.get(profile.name.as_str()) else { continue };
        let room: Vec<Position> =
            profile.positions().filter(|position| geometry.has_room_for(*position)).collect();
        let covers = |slice: u8| room.iter().any(|one| one.start() <= slice && slice < one.end());
        total += weight * free.iter().filter(|slice| !covers(**slice)).count() as f64;
    }
    total
}

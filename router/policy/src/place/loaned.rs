//! Lent slices: which of them inference needs back, and where more could be cut for jobs.

use mig::{Geometry, Position};

use super::{Placed, Snapshot, Target, place};

/// A slice that could be cut for a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    pub gpu: usize,
    /// Slices that nobody uses and that must go for it.
    pub destroy: Vec<Position>,
    pub create: Position,
}

/// Lent slices without which some model does not get what it is to have: GPU and position.
///
/// Those are meant on which replicas would be started if nothing were lent.
pub fn wanted_back(snapshot: &Snapshot, refused: &[super::Refusal]) -> Vec<(usize, Position)> {
    let lent = |gpu: &super::Gpu| gpu.slices.iter().any(|slice| slice.loaned);
    if !refused.iter().any(|one| one.model.is_some()) || !snapshot.gpus.iter().any(lent) {
        return Vec::new();
    }
    let mut all_back = snapshot.clone();
    for slice in all_back.gpus.iter_mut().flat_map(|gpu| &mut gpu.slices) {
        slice.loaned = false;
    }
    let placed = place(&all_back).target.placed;
    let mut wanted = Vec::new();
    for (index, gpu) in snapshot.gpus.iter().enumerate() {
        for slice in gpu.slices.iter().filter(|slice| slice.loaned) {
            let used = |one: &Placed| {
                one.gpu == index && one.replica.is_none() && one.position.overlaps(slice.position)
            };
            if placed.iter().any(used) {
                wanted.push((index, slice.position));
            }
        }
    }
    wanted
}

/// Where a slice of `profile` can be cut without touching what is used or shall be: on the GPU that
/// has most lent already, and else on one without replicas, and as far from its start as can be.
pub fn room(snapshot: &Snapshot, target: &Target, profile: &str) -> Option<Room> {
    let mut best: Option<((u32, bool, usize), Room)> = None;
    for (gpu, on) in snapshot.gpus.iter().enumerate().filter(|(_, on)| on.healthy && on.cuttable) {
        let planned = || target.placed.iter().filter(move |one| one.gpu == gpu);
        let lent = || on.slices.iter().filter(|slice| slice.loaned);
        let holds = on.slices.iter().filter(|slice| !slice.replicas.is_empty());
        let mut used: Vec<Position> = planned()
            .map(|one| one.position)
            .chain(lent().chain(holds).map(|slice| slice.position))
            .collect();
        used.sort_by_key(|position| (position.start(), position.end()));
        used.dedup();
        let Ok(geometry) = Geometry::new(on.kind, used.clone()) else { continue };
        let fits = |position: &Position| geometry.with(*position).is_ok();
        let Ok(profile) = on.kind.profile(profile) else { continue };
        let Some(create) = profile.positions().filter(fits).max_by_key(|one| one.start()) else {
            continue;
        };
        let in_the_way = |position: &Position| {
            !used.contains(position) && position.overlaps(create) && *position != create
        };
        let there = on.slices.iter().map(|slice| slice.position);
        let destroy = there.filter(in_the_way).collect();
        let compute: u32 =
            lent().map(|slice| u32::from(slice.position.profile().compute_slices)).sum();
        // More lent is better, then no replicas, then the lower index.
        let rank = (u32::MAX - compute, planned().next().is_some(), gpu);
        if best.as_ref().is_none_or(|(known, _)| rank < *known) {
            best = Some((rank, Room { gpu, destroy, create }));
        }
    }
    best.map(|(_, room)| room)
}

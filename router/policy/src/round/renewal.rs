//! Replicas whose executors run an earlier program than their worker, which was upgraded.
//!
//! They serve as well as ever, so there is no hurry: one after another is replaced as one of an
//! earlier edition is, by a successor that is warm before it goes, in another process of its slice.
//! One whose slice has no memory for both stays until it is loaded anew for another reason.

use std::collections::{BTreeMap, BTreeSet};

use super::{PlaceMemory, World, asked::AskedReplica, sites::Sites};
use crate::{
    fleet::{ReplicaId, SliceId},
    place::{Replica, State},
};

/// Marks the one that is replaced next, or is being replaced: always the same until it leaves.
pub(super) fn mark(
    world: &World,
    sites: &Sites,
    replicas: &mut BTreeMap<u64, AskedReplica>,
    place: &PlaceMemory,
) {
    let processes = processes(world);
    if processes.is_empty() {
        return;
    }
    let asked = place.asked.values().flatten();
    let aged: BTreeSet<u64> =
        asked.filter(|one| processes.contains(&one.id())).map(|one| one.replica).collect();
    let next = aged.iter().find(|id| {
        replicas.get(id).is_some_and(|one| {
            let Replica { current, state, .. } = one.replica;
            current && state == State::Ready && has_room(world, sites, replicas, &aged, one)
        })
    });
    if let Some(one) = next.and_then(|id| replicas.get_mut(id)) {
        one.replica.current = false;
    }
}

/// The processes of a slice that are to go, so that nothing more is loaded by them.
pub(super) fn aged_processes(world: &World, slice: &SliceId) -> BTreeSet<u32> {
    let worker = world.workers.iter().find(|worker| worker.name == slice.worker);
    let gpu = worker.and_then(|worker| worker.gpus.iter().find(|gpu| gpu.index == slice.gpu));
    let slices = gpu.into_iter().flat_map(|gpu| &gpu.slices);
    let replicas =
        slices.filter(|one| one.position == slice.position).flat_map(|one| &one.replicas);
    replicas.filter(|one| one.aged).map(|one| one.process).collect()
}

fn processes(world: &World) -> BTreeSet<ReplicaId> {
    let mut aged = BTreeSet::new();
    for worker in &world.workers {
        let slices = worker.gpus.iter().flat_map(|gpu| &gpu.slices);
        let mine = slices.flat_map(|slice| &slice.replicas).filter(|one| one.aged);
        aged.extend(mine.map(|one| ReplicaId { worker: worker.name.clone(), replica: one.id }));
    }
    aged
}

/// Whether its slice has memory for another like it, or already holds its successor.
fn has_room(
    world: &World,
    sites: &Sites,
    replicas: &BTreeMap<u64, AskedReplica>,
    aged: &BTreeSet<u64>,
    one: &AskedReplica,
) -> bool {
    let needs_mib = |one: &Replica| {
        let stated = one.model.and_then(|model| world.models[model].memory_mib);
        stated.unwrap_or(0).saturating_mul(one.processes.into())
    };
    let beside = replicas.values().filter(|other| {
        let succeeds =
            other.replica.model == one.replica.model && !aged.contains(&other.replica.id);
        (other.site, other.spot) == (one.site, one.spot) && !succeeds
    });
    let taken_mib: u64 = beside.map(|other| needs_mib(&other.replica)).sum();
    let has_mib = sites.all[one.site].spots[one.spot].position.profile().memory_gib * 1024.0;
    (taken_mib + needs_mib(&one.replica)) as f64 <= has_mib
}

//! What a model without a ready replica waits for.

use super::{PlaceMemory, ReplicaPhase, SeenReplica, World};
use crate::fleet::{Link, ReplicaId, SliceName, Wait};

impl PlaceMemory {
    /// Why `model` has no replica in rotation, by what binds first.
    pub(super) fn wait(&self, world: &World, model: &str) -> Wait {
        if world.workers.is_empty() {
            return Wait::NoWorker;
        }
        let gpus = || {
            world.workers.iter().flat_map(|worker| worker.gpus.iter().map(move |gpu| (worker, gpu)))
        };
        if !gpus().any(|(_, gpu)| gpu.readable) {
            return Wait::NoGpu;
        }
        let mine = |phase: ReplicaPhase, meant: &dyn Fn(&str, &SeenReplica) -> bool| {
            gpus().find_map(|(worker, gpu)| {
                let has = |one: &SeenReplica| {
                    one.model == model && one.phase == phase && meant(&worker.name, one)
                };
                let slice = gpu.slices.iter().find(|slice| slice.replicas.iter().any(has))?;
                Some(SliceName::of(&worker.name, &slice.label))
            })
        };
        let is_lost = |worker: &str, one: &SeenReplica| {
            let id = ReplicaId { worker: worker.to_owned(), replica: one.id };
            world.links.get(&id).is_none_or(|link| *link == Link::Connecting)
        };
        if let Some(slice) = mine(ReplicaPhase::Ready, &is_lost) {
            return Wait::Silent(slice);
        }
        if let Some(slice) = mine(ReplicaPhase::Starting, &|_, _| true) {
            return Wait::Loading(slice);
        }
        let stays =
            |worker: &super::SeenWorker| !worker.leaving && !world.drained.contains(&worker.name);
        if !world.workers.iter().any(stays) {
            return Wait::Drained;
        }
        self.aimed(model).map_or(Wait::Unplaced, |gpu| Wait::Reshaping(gpu.clone()))
    }
}

//! The replicas that were asked for, each with all its processes.

use std::collections::BTreeMap;

use super::{Edition, PlaceMemory, ReplicaPhase, SeenWorker, World, sites::Sites};
use crate::{
    fleet::{GpuId, Link, ReplicaId, SliceId},
    place::{Replica, State},
};

#[derive(Clone, Debug, PartialEq)]
pub struct AskedProcess {
    pub id: u32,
    pub replica: u64,
    /// Its model.
    pub model: String,
    pub slice: SliceId,
    /// Which of the slice's processes, from 0.
    pub process: u32,
    pub digest: u64,
    /// Absent if it was found running and is of no model as now configured.
    pub edition: Option<Edition>,
    pub serves: bool,
    /// It goes once it has no batches.
    pub leaving: bool,
}

/// A replica that was asked for, and where it is.
#[derive(Clone, Debug)]
pub(super) struct AskedReplica {
    pub(super) site: usize,
    pub(super) spot: usize,
    pub(super) replica: Replica,
}

impl AskedProcess {
    pub(super) fn id(&self) -> ReplicaId {
        ReplicaId { worker: self.slice.worker.clone(), replica: self.id }
    }

    /// Whether it is of its model as now configured; `wanted` is how that would be loaded here.
    ///
    /// One that takes larger batches than are asked for now serves as well. One that was loaded when
    /// nobody looked at the content of files is taken to have that of now, and only of now.
    fn is_current(&mut self, wanted: &Edition) -> bool {
        match self.edition {
            Some(mine) if mine.digest == wanted.without_content => {
                self.edition = Some(*wanted);
                true
            }
            Some(mine) => {
                mine.without_max_batch == wanted.without_max_batch
                    && mine.max_batch >= wanted.max_batch
            }
            None => {
                let same = [wanted.digest, wanted.without_content].contains(&self.digest);
                if same {
                    self.edition = Some(*wanted);
                }
                same
            }
        }
    }
}

/// The replicas that a worker has when a router first hears of it; `numbered` are given out from
/// there.
pub(super) fn found(worker: &SeenWorker, numbered: &mut u64) -> Vec<AskedProcess> {
    let alive = |phase: ReplicaPhase| match phase {
        ReplicaPhase::Draining | ReplicaPhase::Failed => false,
        ReplicaPhase::Starting | ReplicaPhase::Ready => true,
    };
    let mut found = Vec::new();
    for gpu in &worker.gpus {
        let at = GpuId { worker: worker.name.clone(), gpu: gpu.index };
        for slice in &gpu.slices {
            let mut known: BTreeMap<(&str, u64), u64> = BTreeMap::new();
            for one in slice.replicas.iter().filter(|one| alive(one.phase)) {
                let replica = known.entry((&one.model, one.digest)).or_insert_with(|| {
                    *numbered += 1;
                    *numbered
                });
                found.push(AskedProcess {
                    id: one.id,
                    replica: *replica,
                    model: one.model.clone(),
                    slice: at.slice(slice.position.clone()),
                    process: one.process,
                    digest: one.digest,
                    edition: None,
                    serves: one.serves,
                    leaving: false,
                });
            }
        }
    }
    found
}

impl PlaceMemory {
    /// Every replica by its number. Forgets what was asked of slices that are gone.
    pub(super) fn replicas(&mut self, world: &World, sites: &Sites) -> BTreeMap<u64, AskedReplica> {
        let mut replicas: BTreeMap<u64, AskedReplica> = BTreeMap::new();
        for asked in self.asked.values_mut() {
            asked.retain(|one| {
                let gpu = one.slice.gpu_id();
                sites.spot(&one.slice).is_some() || sites.unread.contains(&gpu)
            });
            for one in asked {
                let Some((site, spot)) = sites.spot(&one.slice) else { continue };
                let at = &sites.all[site].spots[spot];
                let model = world.model(&one.model);
                let edition = model.and_then(|model| world.models[model].editions.get(&at.profile));
                let current = edition.is_some_and(|edition| one.is_current(edition));
                let link = world.links.get(&one.id());
                let serves = link.is_some_and(|link| Link::is_connected(*link));
                let busy = self.neighbours.busy(&at.name);
                let fresh = Replica {
                    id: one.replica,
                    model,
                    current,
                    processes: 0,
                    state: State::Starting,
                    busy,
                };
                let known = replicas.entry(one.replica).or_insert_with(|| AskedReplica {
                    site,
                    spot,
                    replica: fresh,
                });
                join(&mut known.replica, current, serves, one.leaving);
            }
        }
        replicas
    }
}

/// Adds a process: a replica serves once one of its processes does, and leaves with the first.
fn join(replica: &mut Replica, current: bool, serves: bool, leaving: bool) {
    replica.processes += 1;
    replica.current &= current;
    replica.state = match (leaving || replica.state == State::Draining, serves) {
        (true, _) => State::Draining,
        (false, true) => State::Ready,
        (false, false) => replica.state,
    };
}

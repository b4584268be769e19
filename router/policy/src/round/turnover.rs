//! How replicas come and go: started, admitted, drained, stopped.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    PlaceMemory, Plan, World,
    asked::{AskedProcess, AskedReplica},
    renewal,
    sites::Sites,
};
use crate::{
    fleet::{GpuId, Link, ReplicaId, SliceId},
    place::{Action, State},
};

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Cut {
        gpu: GpuId,
        positions: Vec<String>,
        why: String,
    },
    Placed {
        slice: SliceId,
        model: String,
        processes: u32,
        why: String,
    },
    Leaves {
        replica: ReplicaId,
        model: String,
        why: String,
    },
    /// A model does not get what it is to have.
    Unplaced {
        model: String,
        why: String,
    },
}

#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) admit: Vec<ReplicaId>,
    pub(super) drain: Vec<ReplicaId>,
    pub(super) events: Vec<Event>,
}

impl PlaceMemory {
    /// Takes the steps of a plan that can be taken now.
    pub(super) fn take_steps(
        &mut self,
        world: &World,
        plan: &Plan,
        sites: &mut Sites,
        turn: &mut Turn,
    ) {
        for step in plan.decision.now() {
            self.moved_at = world.now;
            match &step.action {
                Action::Cut { gpu, destroy, create } => {
                    let site = &mut sites.all[*gpu];
                    let positions = site.cut(destroy, create);
                    let (gpu, why) = (site.id.clone(), step.why.clone());
                    self.cuts.insert(gpu.clone(), positions.clone());
                    turn.events.push(Event::Cut { gpu, positions, why });
                }
                Action::Start { gpu, position, model, processes, .. } => {
                    let site = &sites.all[*gpu];
                    let spot = site.spots.iter().find(|spot| spot.position == *position);
                    let Some(spot) = spot else { continue };
                    let (slice, profile) = (site.slice(spot), spot.profile.clone());
                    let wanted = Wanted { model: *model, slice, profile };
                    let placed = self.start(world, wanted, (*processes).max(1), sites);
                    let why = step.why.clone();
                    turn.events.extend(placed.map(|(slice, model)| Event::Placed {
                        slice,
                        model,
                        processes: *processes,
                        why,
                    }));
                }
                Action::Stop { replica } => self.stop(world, *replica, &step.why, turn),
            }
        }
    }

    fn start(
        &mut self,
        world: &World,
        wanted: Wanted,
        processes: u32,
        sites: &mut Sites,
    ) -> Option<(SliceId, String)> {
        let model = &world.models[wanted.model];
        let edition = model.editions.get(&wanted.profile).copied()?;
        let slice = wanted.slice;
        let asked = self.asked.get_mut(&slice.worker)?;
        self.numbered += 1;
        let aged = renewal::aged_processes(world, &slice);
        let free = (0..).filter(|process| !aged.contains(process));
        for process in free.take(processes as usize) {
            let highest = asked.iter().map(|one| one.id).max().unwrap_or(0);
            asked.push(AskedProcess {
                id: sites.next_id(&slice.worker, highest),
                replica: self.numbered,
                model: model.name.clone(),
                slice: slice.clone(),
                process,
                digest: edition.digest,
                edition: Some(edition),
                serves: false,
                leaving: false,
            });
        }
        Some((slice, model.name.clone()))
    }

    fn stop(&mut self, world: &World, replica: u64, why: &str, turn: &mut Turn) {
        let all = self.asked.values_mut().flatten();
        for one in all.filter(|one| one.replica == replica && !one.leaving) {
            one.leaving = true;
            let is_ordered = world.unloaded.contains(&one.model);
            let why = if is_ordered { "unloaded by an operator" } else { why };
            let (replica, model, why) = (one.id(), one.model.clone(), why.to_owned());
            turn.events.push(Event::Leaves { replica, model, why });
        }
    }

    /// Lets every replica serve, but none of a new revision beside those of an earlier one.
    pub(super) fn admit(
        &mut self,
        world: &World,
        replicas: &BTreeMap<u64, AskedReplica>,
        turn: &mut Turn,
    ) {
        let stays =
            |id: &u64| self.asked.values().flatten().any(|one| one.replica == *id && !one.leaving);
        let mut earlier = BTreeSet::new();
        for (id, AskedReplica { replica, .. }) in replicas {
            if !replica.current && replica.state == State::Ready && stays(id) {
                earlier.extend(replica.model);
            }
        }
        let may_serve = |one: &AskedProcess| {
            let Some(AskedReplica { replica, .. }) = replicas.get(&one.replica) else {
                return false;
            };
            let waits =
                replica.current && replica.model.is_some_and(|model| earlier.contains(&model));
            !one.leaving && !waits
        };
        for one in self.asked.values_mut().flatten().filter(|one| may_serve(one)) {
            one.serves = true;
            let id = one.id();
            match world.links.get(&id) {
                Some(Link::Connecting | Link::Connected) => turn.admit.push(id),
                Some(Link::InRotation { .. } | Link::Draining { .. }) | None => {}
            }
        }
    }

    /// Lets those that leave finish their batches, once one that takes their place is in rotation,
    /// and forgets those that have finished.
    pub(super) fn drain(&mut self, world: &World, turn: &mut Turn) {
        let mut rotation: BTreeMap<String, bool> = BTreeMap::new();
        for one in self.asked.values().flatten().filter(|one| !one.leaving) {
            let attached = match world.links.get(&one.id()) {
                None | Some(Link::Connecting) => continue,
                Some(Link::Connected | Link::Draining { .. }) => false,
                Some(Link::InRotation { .. }) => true,
            };
            *rotation.entry(one.model.clone()).or_default() |= attached;
        }
        // Of a model that was unloaded, what waits is served first.
        let waits = |model: &str| {
            world.unloaded.contains(model)
                && world.traffic.get(model).is_some_and(|traffic| traffic.waiting > 0)
        };
        for one in self.asked.values_mut() {
            one.retain(|one| {
                // Between its successor's connection and the first batch to it is a moment.
                let awaited = rotation.get(&one.model) == Some(&false);
                if !one.leaving || awaited || waits(&one.model) {
                    return true;
                }
                let id = one.id();
                match world.links.get(&id) {
                    None | Some(Link::Draining { busy: false }) => false,
                    Some(Link::Draining { busy: true }) => true,
                    // A report may admit it between this look and the drain.
                    Some(Link::Connecting | Link::Connected | Link::InRotation { .. }) => {
                        turn.drain.push(id);
                        true
                    }
                }
            });
        }
    }

    /// The slices that have replicas, or shall, or shall vanish.
    pub(super) fn served(&self, sites: &Sites) -> BTreeSet<SliceId> {
        let mut served = sites.vanishing();
        served.extend(self.asked.values().flatten().map(|one| one.slice.clone()));
        served
    }
}

struct Wanted {
    model: usize,
    slice: SliceId,
    profile: String,
}

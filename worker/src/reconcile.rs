//! From what is and what shall be on one GPU to what to do next. Values in, values out.
//!
//! Nothing here remembers: it is asked anew after every change, and the steps it gives may be
//! repeated without harm. A slice that shall vanish is first emptied, replica by replica and then
//! process by process; only when none of its processes is left can a reshape be among the steps.
//! Whoever wishes for a replica on it still, wishes the cut to wait.

use std::collections::{BTreeMap, BTreeSet};

/// A lane of a slice: the slice's position, and which of its processes.
pub(crate) type Place = (String, u32);

/// What shall be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    /// How the GPU shall be cut; absent, it stays as it is.
    pub(crate) cut: Option<BTreeSet<String>>,
    pub(crate) replicas: BTreeMap<u32, Wanted>,
    pub(crate) ranks: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) place: Place,
    pub(crate) digest: u64,
    pub(crate) memory_mib: u64,
}

/// What is.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuWorld {
    /// Whether the GPU can be cut, and is not being cut right now.
    pub(crate) can_reshape: bool,
    /// The slices that can be used, by position, and their memory if known.
    pub(crate) slices: BTreeMap<String, Option<u64>>,
    /// Whether there are slices that cannot be used.
    pub(crate) has_debris: bool,
    pub(crate) lanes: BTreeMap<Place, LaneSeen>,
    pub(crate) ranks: BTreeMap<String, RankSeen>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankSeen {
    pub(crate) name: String,
    pub(crate) over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneSeen {
    pub(crate) phase: LanePhase,
    pub(crate) replicas: BTreeMap<u32, Loaded>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LanePhase {
    Starting,
    Up,
    Stopping,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) digest: u64,
    pub(crate) memory_mib: u64,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It loads, or serves.
    Alive,
    /// It finishes what it has.
    Draining,
    /// It could not be loaded.
    Failed { due: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Let a replica finish its batches and go.
    Unload {
        place: Place,
        replica: u32,
    },
    /// End a process that has no replicas, or whose slice is gone.
    Stop {
        place: Place,
    },
    Reshape,
    Start {
        place: Place,
    },
    Load {
        place: Place,
        replica: u32,
    },
    /// Start a rank on a slice that nothing else is on.
    StartRank {
        position: String,
    },
    /// Have a rank end that nobody wants.
    StopRank {
        position: String,
    },
    /// Let go of a rank that has ended and nobody asks after.
    ForgetRank {
        position: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) steps: Vec<Step>,
    /// Replicas that cannot be had as things are, and why.
    pub(crate) refused: BTreeMap<u32, String>,
}

/// What to do next to come from `world` to `wish`.
pub(crate) fn next(wish: &Wish, world: &GpuWorld) -> Next {
    let mut next = Next::default();
    let wanted = placed(wish, world, &mut next.refused);
    for (place, lane) in &world.lanes {
        let mine = wanted.get(place);
        for (id, loaded) in &lane.replicas {
            let stays = mine.is_some_and(|ids| ids.get(id) == Some(&loaded.digest));
            if !stays && loaded.phase != Phase::Draining {
                next.steps.push(Step::Unload { place: place.clone(), replica: *id });
            }
        }
        let done = lane.replicas.is_empty() && mine.is_none();
        let lost = !world.slices.contains_key(&place.0);
        if (done || lost) && lane.phase != LanePhase::Stopping {
            next.steps.push(Step::Stop { place: place.clone() });
        }
    }
    if world.can_reshape && is_due(wish, world) {
        next.steps.push(Step::Reshape);
    }
    ranks(wish, world, &mut next);
    for place in wanted.keys() {
        let there = world.slices.contains_key(&place.0) && !world.ranks.contains_key(&place.0);
        if there && !world.lanes.contains_key(place) {
            next.steps.push(Step::Start { place: place.clone() });
        }
    }
    load(wish, world, &wanted, &mut next);
    next
}

type Places = BTreeMap<Place, BTreeMap<u32, u64>>;

/// The wanted replicas by place, without those that have none.
fn placed(wish: &Wish, world: &GpuWorld, refused: &mut BTreeMap<u32, String>) -> Places {
    let mut places = Places::new();
    for (id, wanted) in &wish.replicas {
        let position = &wanted.place.0;
        let coming =
            world.can_reshape && wish.cut.as_ref().is_some_and(|cut| cut.contains(position));
        if coming || world.slices.contains_key(position) {
            places.entry(wanted.place.clone()).or_default().insert(*id, wanted.digest);
        } else {
            refused.insert(*id, format!("there is no slice {position}"));
        }
    }
    places
}

/// Whether the GPU is not cut as wished, and nothing stands on what would vanish.
fn is_due(wish: &Wish, world: &GpuWorld) -> bool {
    let Some(cut) = &wish.cut else { return false };
    let found: BTreeSet<&String> = world.slices.keys().collect();
    let differs = world.has_debris || found != cut.iter().collect();
    let lanes = world.lanes.keys().map(|(position, _)| position);
    differs && lanes.chain(world.ranks.keys()).all(|position| cut.contains(position))
}

/// Ends the ranks that are not wanted, and starts those that are where nothing else is.
fn ranks(wish: &Wish, world: &GpuWorld, next: &mut Next) {
    for (position, seen) in &world.ranks {
        let position = position.clone();
        match (wish.ranks.get(&position) == Some(&seen.name), seen.over) {
            (true, _) => {}
            (false, false) => next.steps.push(Step::StopRank { position }),
            (false, true) => next.steps.push(Step::ForgetRank { position }),
        }
    }
    for position in wish.ranks.keys() {
        let alone = !world.ranks.contains_key(position)
            && world.lanes.keys().all(|(other, _)| other != position);
        if alone && world.slices.contains_key(position) {
            next.steps.push(Step::StartRank { position: position.clone() });
        }
    }
}

fn load(wish: &Wish, world: &GpuWorld, wanted: &Places, next: &mut Next) {
    let mut taken = memory(world, |_, _| true);
    // What is on its way out holds memory for now, which is no reason to give up.
    let mut bound =
        memory(world, |place, id| wanted.get(place).is_some_and(|ids| ids.contains_key(&id)));
    for (place, ids) in wanted {
        let Some(lane) = world.lanes.get(place) else { continue };
        let total = world.slices.get(&place.0).copied().flatten().unwrap_or(u64::MAX);
        for id in ids.keys().filter(|id| is_missing(lane, **id)) {
            let needs = wish.replicas.get(id).map_or(0, |one| one.memory_mib);
            let used = bound.entry(&place.0).or_default();
            if used.saturating_add(needs) > total {
                let free = total.saturating_sub(*used);
                let reason =
                    format!("out of memory: needs {needs} MiB, {free} of {total} are free");
                next.refused.insert(*id, reason);
                continue;
            }
            *used += needs;
            let used = taken.entry(&place.0).or_default();
            if lane.phase == LanePhase::Up && used.saturating_add(needs) <= total {
                *used += needs;
                next.steps.push(Step::Load { place: place.clone(), replica: *id });
            }
        }
    }
}

fn memory(world: &GpuWorld, counts: impl Fn(&Place, u32) -> bool) -> BTreeMap<&str, u64> {
    let mut held: BTreeMap<&str, u64> = BTreeMap::new();
    for (place, lane) in &world.lanes {
        let alive = lane
            .replicas
            .iter()
            .filter(|(id, one)| !matches!(one.phase, Phase::Failed { .. }) && counts(place, **id));
        *held.entry(&place.0).or_default() += alive.map(|(_, one)| one.memory_mib).sum::<u64>();
    }
    held
}

fn is_missing(lane: &LaneSeen, id: u32) -> bool {
    match lane.replicas.get(&id).map(|loaded| loaded.phase) {
        None | Some(Phase::Failed { due: true }) => true,
        Some(Phase::Alive | Phase::Draining | Phase::Failed { due: false }) => false,
    }
}

#[cfg(test)]
mod tests;

//! What operators have ordered, and how far it is.

use std::collections::{BTreeMap, BTreeSet};

use super::{PinOrder, PlaceMemory, World, asked::AskedReplica, sites::Sites};
use crate::place::{self, Placed, Snapshot, State, obstacle};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrderProgress {
    pub holds: BTreeMap<String, Vec<String>>,
    pub pins: Vec<PinProgress>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinProgress {
    Held,
    Starting { why: &'static str },
    Waiting { why: Option<String> },
}

/// A pin by numbers; nothing if its model or its GPU is not there.
pub(super) fn by_number(pin: &PinOrder, world: &World, sites: &Sites) -> Option<place::Pin> {
    let model = world.model(&pin.model)?;
    let (gpu, position) = sites.position(&pin.at)?;
    let from = pin.from.as_ref().and_then(|slice| sites.position(slice));
    Some(place::Pin { model, gpu, position, from, by: pin.by.clone() })
}

pub(super) fn pins(world: &World, sites: &Sites) -> Vec<place::Pin> {
    let served = world.pins.iter().filter(|pin| !world.unloaded.contains(&pin.model));
    served.filter_map(|pin| by_number(pin, world, sites)).collect()
}

/// Pins whose models have left the slice they were to leave.
pub(super) fn moved(
    world: &World,
    sites: &Sites,
    replicas: &BTreeMap<u64, AskedReplica>,
) -> Vec<PinOrder> {
    let still_there = |pin: &PinOrder| {
        let Some(place::Pin { model, from: Some(from), .. }) = by_number(pin, world, sites) else {
            // A worker that is away may come back with it.
            return true;
        };
        replicas.values().any(|one| {
            let at = (one.site, sites.all[one.site].spots[one.spot].position);
            one.replica.model == Some(model) && at == from
        })
    };
    let moving = world.pins.iter().filter(|pin| pin.from.is_some());
    moving.filter(|pin| !still_there(pin)).cloned().collect()
}

impl PlaceMemory {
    pub(super) fn progress(
        &self,
        world: &World,
        sites: &Sites,
        replicas: &BTreeMap<u64, AskedReplica>,
        snapshot: &Snapshot,
    ) -> OrderProgress {
        let target = self.last_target(world, sites);
        let holds = world.drained.iter().map(|worker| {
            let mut holds = self.replicas_on(worker);
            holds.extend(jobs_on(worker, world, sites));
            (worker.clone(), holds)
        });
        let pin = |pin: &PinOrder| {
            if world.unloaded.contains(&pin.model) {
                return PinProgress::Waiting { why: Some("its model is unloaded".to_owned()) };
            }
            let Some(wanted) = by_number(pin, world, sites) else {
                let why = "its worker is away, or its model is not configured".to_owned();
                return PinProgress::Waiting { why: Some(why) };
            };
            let is_it = |one: &&Placed| {
                let at = (one.model, one.gpu, one.position);
                one.pinned && at == (wanted.model, wanted.gpu, wanted.position)
            };
            let Some(placed) = target.placed.iter().find(is_it) else {
                return PinProgress::Waiting { why: obstacle(snapshot, &wanted) };
            };
            let known = placed.replica.and_then(|id| replicas.get(&id));
            match known.map(|one| one.replica.state) {
                Some(State::Ready) => PinProgress::Held,
                Some(State::Starting | State::Draining | State::Failed) => {
                    PinProgress::Starting { why: "it is being loaded" }
                }
                None => {
                    PinProgress::Starting { why: "it is loaded once what is in its way has gone" }
                }
            }
        };
        OrderProgress { holds: holds.collect(), pins: world.pins.iter().map(pin).collect() }
    }

    /// The replicas that are still on a drained worker, and why.
    fn replicas_on(&self, worker: &str) -> Vec<String> {
        let line = |one: &super::AskedProcess| {
            let why = if one.leaving {
                "finishes its last batches"
            } else {
                "serves until its successor is ready"
            };
            format!("{} on gpu{} {} {why}", one.model, one.slice.gpu, one.slice.position)
        };
        // The processes of one replica are one line.
        let lines: BTreeSet<String> =
            self.asked.get(worker).into_iter().flatten().map(line).collect();
        lines.into_iter().collect()
    }
}

/// The jobs that still have slices of a drained worker.
fn jobs_on(worker: &str, world: &World, sites: &Sites) -> Vec<String> {
    let mut lines = Vec::new();
    for site in sites.all.iter().filter(|site| site.id.worker == worker) {
        for spot in site.spots.iter().filter(|spot| spot.lent) {
            let slice = site.slice(spot);
            let holder = world.jobs.iter().find(|job| job.life.slices().any(|one| *one == slice));
            let job = holder.map_or_else(|| "a job".to_owned(), |job| format!("job {}", job.id));
            let (gpu, position) = (slice.gpu, &slice.position);
            lines.push(format!("{job} on gpu{gpu} {position} has its notice to stop"));
        }
    }
    lines
}

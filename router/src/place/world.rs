//! The fleet's slices, those there are and those there shall be.

use std::collections::{BTreeMap, HashMap};

use protocol::{GpuReport, ModelSpec};

use super::{Assigned, SliceSeen, spec};
use crate::{config::Config, fleet::Seen, jobs::Seat, lend::Slices};

const MIB: u64 = 1 << 20;

/// One slice of the fleet.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// Its index among all.
    pub(super) index: usize,
    pub(super) worker: String,
    pub(super) gpu: u32,
    pub(super) position: String,
    pub(super) profile: String,
    pub(super) seen: SliceSeen,
}

impl Spot {
    /// Where it is, as jobs say it.
    pub(super) fn seat(&self) -> Seat {
        Seat { worker: self.worker.clone(), gpu: self.gpu, position: self.position.clone() }
    }
}

/// Every slice of every worker, and how the GPUs shall be cut.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) spots: Vec<Spot>,
    cuts: BTreeMap<(String, u32), Option<Vec<String>>>,
    at: HashMap<(String, u32, String), usize>,
    last_ids: HashMap<String, u32>,
    specs: HashMap<(usize, String), ModelSpec>,
}

impl World {
    pub(super) fn new(config: &Config, seen: &[Seen], owners: &Slices) -> Self {
        let mut world = Self::default();
        world.specs.reserve(config.models.len());
        for Seen { worker, report, .. } in seen {
            for gpu in &report.gpus {
                world.survey(worker, gpu, report.leaving);
            }
        }
        for spot in &mut world.spots {
            spot.seen.lent |= owners.is_lent(&spot.seat());
        }
        world
    }

    fn survey(&mut self, worker: &str, gpu: &GpuReport, leaving: bool) {
        let cut = if leaving { None } else { cut(gpu) };
        let number = self.cuts.len();
        let mut add = |position: &str, profile: &str, seen: SliceSeen| {
            let index = self.spots.len();
            self.at.insert((worker.to_owned(), gpu.index, position.to_owned()), index);
            self.spots.push(Spot {
                index,
                worker: worker.to_owned(),
                gpu: gpu.index,
                position: position.to_owned(),
                profile: profile.to_owned(),
                seen,
            });
        };
        for slice in gpu.slices.iter().filter(|slice| slice.uuid.is_some()) {
            let memory_mib = slice.memory_bytes.map_or(u64::MAX, |bytes| bytes / MIB);
            let planned = cut.as_ref().is_none_or(|cut| cut.contains(&slice.position));
            let stays = planned && !leaving;
            let (exists, lent) = (true, slice.rank.is_some());
            let seen = SliceSeen { gpu: number, memory_mib, exists, stays, leaving, lent };
            add(&slice.position, &slice.profile, seen);
        }
        let kind = gpu.kind.as_deref().and_then(|kind| mig::kind(kind).ok());
        let there = |position: &&String| {
            gpu.slices.iter().any(|slice| slice.uuid.is_some() && slice.position == **position)
        };
        for text in cut.iter().flatten().filter(|position| !there(position)) {
            let Some(position) = kind.and_then(|kind| kind.position(text).ok()) else { continue };
            let memory_mib = (position.profile().memory_gib * 1024.0) as u64;
            let (exists, stays, lent) = (false, true, false);
            let seen = SliceSeen { gpu: number, memory_mib, exists, stays, leaving, lent };
            add(text, &position.profile().name, seen);
        }
        let ids = gpu.slices.iter().flat_map(|slice| &slice.replicas).map(|one| one.replica);
        let last = self.last_ids.entry(worker.to_owned()).or_default();
        *last = ids.fold(*last, u32::max);
        self.cuts.insert((worker.to_owned(), gpu.index), cut);
    }

    /// Where an assigned replica is.
    pub(super) fn spot(&self, worker: &str, one: &Assigned) -> Option<usize> {
        self.at.get(&(worker.to_owned(), one.gpu, one.position.clone())).copied()
    }

    /// How a model is loaded on a slice.
    pub(super) fn spec(&mut self, config: &Config, model: usize, slice: usize) -> &ModelSpec {
        let profile = &self.spots[slice].profile;
        self.specs
            .entry((model, profile.clone()))
            .or_insert_with(|| spec::of(&config.models[model], profile))
    }

    /// A worker's GPUs, and how each shall be cut.
    pub(super) fn gpus(&self, worker: &str) -> impl Iterator<Item = (u32, Option<Vec<String>>)> {
        let mine = self.cuts.iter().filter(move |((name, _), _)| name == worker);
        mine.map(|((_, gpu), cut)| (*gpu, cut.clone()))
    }

    /// The highest id of a replica that a worker has.
    pub(super) fn last_id(&self, worker: &str) -> u32 {
        self.last_ids.get(worker).copied().unwrap_or(0)
    }

    pub(super) fn used_id(&mut self, worker: &str, id: u32) {
        self.last_ids.insert(worker.to_owned(), id);
    }
}

/// How a GPU shall be cut: as its operator wants; all of it if it has no slices; else as it is.
fn cut(gpu: &GpuReport) -> Option<Vec<String>> {
    if !gpu.can_reshape {
        return None;
    }
    if gpu.pinned.is_some() {
        return gpu.pinned.clone();
    }
    if !gpu.slices.is_empty() {
        return None;
    }
    let kind = gpu.kind.as_deref().and_then(|kind| mig::kind(kind).ok())?;
    Some(vec![kind.whole().to_string()])
}

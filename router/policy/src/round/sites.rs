//! The fleet's GPUs, as they are and as they shall be cut.

use std::collections::{BTreeMap, BTreeSet};

use mig::{Kind, Position};

use super::{SeenGpu, SeenSlice, World};
use crate::fleet::{GpuId, SliceId, SliceName};

/// The memory of a GPU that does not say: more than is ever asked for.
const UNKNOWN_MIB: u64 = 1 << 32;
const WHOLE: &str = "whole";

#[derive(Debug, Default)]
pub(super) struct Sites {
    pub(super) all: Vec<Site>,
    /// GPUs that cannot be read at the moment; what was asked of them stays.
    pub(super) unread: BTreeSet<GpuId>,
    at: BTreeMap<GpuId, usize>,
    /// By worker, the highest number of a replica.
    last_ids: BTreeMap<String, u32>,
}

#[derive(Debug)]
pub(super) struct Site {
    pub(super) id: GpuId,
    pub(super) kind: &'static Kind,
    pub(super) open: bool,
    pub(super) cuttable: bool,
    /// How its worker shall cut it; absent, it stays as it is.
    positions: Option<Vec<String>>,
    pub(super) spots: Vec<Spot>,
    /// Slices that the router has cut away and that are still there.
    vanishing: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) position: Position,
    pub(super) text: String,
    pub(super) name: SliceName,
    pub(super) profile: String,
    pub(super) doomed: bool,
    pub(super) lent: bool,
}

impl Sites {
    /// Looks at every GPU; `cuts` is how some of them shall be cut.
    pub(super) fn new(world: &World, cuts: &BTreeMap<GpuId, Vec<String>>) -> Self {
        let lent: BTreeSet<&SliceId> =
            world.jobs.iter().flat_map(|job| job.life.slices()).collect();
        let mut sites = Self::default();
        for worker in &world.workers {
            let open = world.is_open(worker);
            for gpu in &worker.gpus {
                let id = GpuId { worker: worker.name.clone(), gpu: gpu.index };
                let ids = gpu.slices.iter().flat_map(|slice| &slice.replicas).map(|one| one.id);
                let last = sites.last_ids.entry(worker.name.clone()).or_default();
                *last = ids.fold(*last, u32::max);
                if !gpu.readable {
                    sites.unread.insert(id);
                    continue;
                }
                let mut site = survey(id.clone(), gpu, cuts.get(&id).filter(|_| open), open);
                site.find_lent(gpu, &lent);
                sites.at.insert(id, sites.all.len());
                sites.all.push(site);
            }
        }
        sites
    }

    pub(super) fn site(&self, gpu: &GpuId) -> Option<usize> {
        self.at.get(gpu).copied()
    }

    /// Where a slice is that exists or shall: its GPU and its index there.
    pub(super) fn spot(&self, slice: &SliceId) -> Option<(usize, usize)> {
        let site = self.site(&slice.gpu_id())?;
        let spots = &self.all[site].spots;
        Some((site, spots.iter().position(|spot| spot.text == slice.position)?))
    }

    /// A slice by its GPU's index and its position; it need not exist.
    pub(super) fn position(&self, slice: &SliceId) -> Option<(usize, Position)> {
        let site = self.site(&slice.gpu_id())?;
        let kind = self.all[site].kind;
        let text = slice.position.as_str();
        let position = if text == WHOLE { Some(kind.whole()) } else { kind.position(text).ok() };
        Some((site, position?))
    }

    /// By worker and GPU, how each shall be cut.
    pub(super) fn cuts(&self) -> BTreeMap<String, BTreeMap<u32, Option<Vec<String>>>> {
        let mut cuts: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
        for site in &self.all {
            let on = cuts.entry(site.id.worker.clone()).or_default();
            on.insert(site.id.gpu, site.positions.clone());
        }
        for gpu in &self.unread {
            cuts.entry(gpu.worker.clone()).or_default().insert(gpu.gpu, None);
        }
        cuts
    }

    pub(super) fn vanishing(&self) -> BTreeSet<SliceId> {
        let of = |site: &Site| {
            let id = site.id.clone();
            site.vanishing.clone().into_iter().map(move |position| id.slice(position))
        };
        self.all.iter().flat_map(of).collect()
    }

    /// A number that no replica of a worker has had, as far as is known.
    pub(super) fn next_id(&mut self, worker: &str, asked: u32) -> u32 {
        let last = self.last_ids.entry(worker.to_owned()).or_default();
        *last = (*last).max(asked) + 1;
        *last
    }
}

impl Site {
    pub(super) fn slice(&self, spot: &Spot) -> SliceId {
        self.id.slice(spot.text.clone())
    }

    /// Finds which slices jobs have: those that are lent, and those on which a rank still runs.
    fn find_lent(&mut self, gpu: &SeenGpu, lent: &BTreeSet<&SliceId>) {
        let ranked = |text: &str| {
            gpu.slices.iter().any(|slice| slice.position == text && slice.rank.is_some())
        };
        for spot in &mut self.spots {
            let slice = self.id.slice(spot.text.clone());
            spot.lent = lent.contains(&slice) || ranked(&spot.text);
        }
    }

    pub(super) fn cut(&mut self, destroy: &[Position], create: &[Position]) -> Vec<String> {
        let gone = self.spots.iter().filter(|spot| destroy.contains(&spot.position));
        self.vanishing.extend(gone.map(|spot| spot.text.clone()));
        self.spots.retain(|spot| !destroy.contains(&spot.position));
        self.spots.extend(create.iter().map(|position| planned(&self.id, *position)));
        self.spots.sort_by_key(|spot| spot.position.start());
        let positions: Vec<String> = self.spots.iter().map(|spot| spot.text.clone()).collect();
        self.positions = Some(positions.clone());
        positions
    }
}

fn survey(id: GpuId, gpu: &SeenGpu, wanted: Option<&Vec<String>>, open: bool) -> Site {
    let whole_mib = || {
        let slice = gpu.slices.first().and_then(|slice| slice.memory_mib);
        slice.or(gpu.memory_mib).unwrap_or(UNKNOWN_MIB)
    };
    let kind = gpu.kind.unwrap_or_else(|| mig::undivided(whole_mib()));
    let usable = gpu.slices.iter().filter(|slice| slice.usable);
    let there: Vec<Spot> = usable.filter_map(|slice| existing(&id.worker, kind, slice)).collect();
    let cuttable = gpu.can_reshape && gpu.kind.is_some() && open;
    let goal = gpu.pinned.as_ref().or(wanted).filter(|_| cuttable);
    let Some(goal) = goal else {
        let (positions, vanishing) = (None, Vec::new());
        return Site { id, kind, open, cuttable, positions, spots: there, vanishing };
    };
    let mut spots = there;
    let pinned = gpu.pinned.is_some();
    for spot in &mut spots {
        spot.doomed = !goal.contains(&spot.text);
    }
    // What the router has cut away itself was empty.
    let gone = spots.iter().filter(|spot| !pinned && spot.doomed);
    let vanishing: Vec<String> = gone.map(|spot| spot.text.clone()).collect();
    spots.retain(|spot| pinned || !spot.doomed);
    for text in goal {
        if spots.iter().all(|spot| spot.text != *text)
            && let Ok(position) = kind.position(text)
        {
            spots.push(planned(&id, position));
        }
    }
    let positions = Some(goal.clone());
    Site { id, kind, open, cuttable: !pinned, positions, spots, vanishing }
}

fn existing(worker: &str, kind: &'static Kind, slice: &SeenSlice) -> Option<Spot> {
    let position = match slice.position.as_str() {
        WHOLE => kind.whole(),
        text => kind.position(text).ok()?,
    };
    let (text, profile) = (slice.position.clone(), slice.profile.clone());
    let name = SliceName::of(worker, &slice.label);
    Some(Spot { position, text, name, profile, doomed: false, lent: false })
}

fn planned(gpu: &GpuId, position: Position) -> Spot {
    let profile = position.profile().name.clone();
    let name = SliceName::of(&gpu.worker, &mig::slice_label(gpu.gpu as usize, position));
    Spot { position, text: position.to_string(), name, profile, doomed: false, lent: false }
}

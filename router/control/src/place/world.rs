//! The fleet's GPUs, as they are and as they shall be cut.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use config::Config;
use mig::{Kind, Position};
use policy::fleet::SliceId;
use protocol::{GpuReport, ModelSpec, SliceReport, WHOLE};

use super::spec;
use crate::{
    fleet::{Seen, labelled},
    ledger::Slices,
};

const MIB: u64 = 1 << 20;
/// The memory of a GPU that does not say: more than is ever asked for.
const UNKNOWN_MIB: u64 = 1 << 32;

/// A GPU of the fleet: its worker, and its index there.
pub(super) type GpuKey = (String, u32);

/// One GPU of the fleet.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) key: GpuKey,
    pub(super) kind: &'static Kind,
    /// Whether anything may be put there.
    pub(super) open: bool,
    pub(super) cuttable: bool,
    /// How its worker shall cut it; absent, it stays as it is.
    pub(super) positions: Option<Vec<String>>,
    pub(super) slices: Vec<Spot>,
    /// Slices that the router has cut away and that are still there.
    vanishing: Vec<String>,
}

/// A slice there is or shall be.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) position: Position,
    /// As its worker calls it.
    pub(super) text: String,
    /// As metrics call it.
    pub(super) label: String,
    pub(super) profile: String,
    /// It shall vanish.
    pub(super) doomed: bool,
    /// A job has it.
    pub(super) lent: bool,
}

/// Every GPU of every worker that can be read.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) sites: Vec<Site>,
    /// GPUs that cannot be read at the moment; what was asked of them stays.
    unread: Vec<GpuKey>,
    at: HashMap<GpuKey, usize>,
    last_ids: HashMap<String, u32>,
    specs: HashMap<(usize, String), ModelSpec>,
}

impl World {
    /// Looks at every GPU; `cuts` is how some of them shall be cut.
    pub(super) fn new(
        seen: &[Seen],
        cuts: &BTreeMap<GpuKey, Vec<String>>,
        owners: &Slices,
    ) -> Self {
        let mut world = Self::default();
        for Seen { worker, report, .. } in seen {
            for gpu in &report.gpus {
                let key = (worker.clone(), gpu.index);
                let ids =
                    gpu.slices.iter().flat_map(|slice| &slice.replicas).map(|one| one.replica);
                let last = world.last_ids.entry(worker.clone()).or_default();
                *last = ids.fold(*last, u32::max);
                if gpu.mode.is_none() {
                    world.unread.push(key);
                    continue;
                }
                world.at.insert(key.clone(), world.sites.len());
                let wanted = cuts.get(&key).filter(|_| !report.leaving);
                let mut site = survey(key, gpu, wanted, !report.leaving);
                site.find_lent(gpu, owners);
                world.sites.push(site);
            }
        }
        world
    }

    /// The index of a GPU.
    pub(super) fn site(&self, worker: &str, gpu: u32) -> Option<usize> {
        self.at.get(&(worker.to_owned(), gpu)).copied()
    }

    /// Whether a GPU cannot be read at the moment.
    pub(super) fn is_unread(&self, worker: &str, gpu: u32) -> bool {
        self.unread.iter().any(|(name, index)| name == worker && *index == gpu)
    }

    /// How a model is loaded on a slice of `profile`.
    pub(super) fn spec(&mut self, config: &Config, model: usize, profile: &str) -> &ModelSpec {
        self.specs
            .entry((model, profile.to_owned()))
            .or_insert_with(|| spec::of(&config.models[model], profile))
    }

    /// A worker's GPUs, and how each shall be cut.
    pub(super) fn gpus(&self, worker: &str) -> BTreeMap<u32, Option<Vec<String>>> {
        let read = self.sites.iter().filter(|site| site.key.0 == worker);
        let read = read.map(|site| (site.key.1, site.positions.clone()));
        let unread = self.unread.iter().filter(|(name, _)| name == worker);
        read.chain(unread.map(|(_, gpu)| (*gpu, None))).collect()
    }

    /// Slices that are still there and shall not be.
    pub(super) fn vanishing(&self) -> BTreeSet<SliceId> {
        let seats = self.sites.iter().flat_map(|site| {
            let (worker, gpu) = site.key.clone();
            site.vanishing.iter().map(move |position| SliceId {
                worker: worker.clone(),
                gpu,
                position: position.clone(),
            })
        });
        seats.collect()
    }

    /// An id that no replica of a worker has had, as far as is known.
    pub(super) fn next_id(&mut self, worker: &str, asked: u32) -> u32 {
        let last = self.last_ids.entry(worker.to_owned()).or_default();
        *last = (*last).max(asked) + 1;
        *last
    }
}

impl Site {
    /// The slice at a position, if it has or shall have it.
    pub(super) fn spot(&self, text: &str) -> Option<&Spot> {
        self.slices.iter().find(|spot| spot.text == text)
    }

    /// Where one of its slices is, as jobs say it.
    pub(super) fn seat(&self, spot: &Spot) -> SliceId {
        let (worker, gpu) = self.key.clone();
        SliceId { worker, gpu, position: spot.text.clone() }
    }

    /// Finds which slices jobs have: those that are lent, and those on which a rank still runs.
    fn find_lent(&mut self, gpu: &GpuReport, owners: &Slices) {
        let ranked = |text: &str| {
            gpu.slices.iter().any(|slice| slice.position == text && slice.rank.is_some())
        };
        let lent: Vec<bool> = self
            .slices
            .iter()
            .map(|spot| owners.is_lent(&self.seat(spot)) || ranked(&spot.text))
            .collect();
        for (spot, lent) in self.slices.iter_mut().zip(lent) {
            spot.lent = lent;
        }
    }

    /// Cuts it otherwise, as far as is planned.
    pub(super) fn cut(&mut self, destroy: &[Position], create: &[Position]) -> Vec<String> {
        let gone = self.slices.iter().filter(|spot| destroy.contains(&spot.position));
        self.vanishing.extend(gone.map(|spot| spot.text.clone()));
        self.slices.retain(|spot| !destroy.contains(&spot.position));
        self.slices.extend(create.iter().map(|position| planned(&self.key, *position)));
        self.slices.sort_by_key(|spot| spot.position.start());
        let positions: Vec<String> = self.slices.iter().map(|spot| spot.text.clone()).collect();
        self.positions = Some(positions.clone());
        positions
    }
}

fn survey(key: GpuKey, gpu: &GpuReport, wanted: Option<&Vec<String>>, open: bool) -> Site {
    let known = gpu.kind.as_deref().and_then(|kind| mig::kind(kind).ok());
    let whole_mib = || {
        let slice = gpu.slices.first().and_then(|slice| slice.memory_bytes);
        let all = gpu.memory_bytes.map(|(all, _)| all);
        slice.or(all).map_or(UNKNOWN_MIB, |bytes| bytes / MIB)
    };
    let kind = known.unwrap_or_else(|| mig::undivided(whole_mib()));
    let there: Vec<Spot> = gpu
        .slices
        .iter()
        .filter(|slice| slice.uuid.is_some())
        .filter_map(|slice| existing(&key.0, kind, slice))
        .collect();
    let cuttable = gpu.can_reshape && known.is_some() && open;
    let goal = gpu.pinned.as_ref().or(wanted).filter(|_| cuttable);
    let Some(goal) = goal else {
        let positions = None;
        let vanishing = Vec::new();
        return Site { key, kind, open, cuttable, positions, slices: there, vanishing };
    };
    let mut slices = there;
    let pinned = gpu.pinned.is_some();
    for spot in &mut slices {
        spot.doomed = !goal.contains(&spot.text);
    }
    // What the router has cut away itself was empty.
    let gone = slices.iter().filter(|spot| !pinned && spot.doomed);
    let vanishing: Vec<String> = gone.map(|spot| spot.text.clone()).collect();
    slices.retain(|spot| pinned || !spot.doomed);
    for text in goal {
        if slices.iter().all(|spot| spot.text != *text)
            && let Ok(position) = kind.position(text)
        {
            slices.push(planned(&key, position));
        }
    }
    let positions = Some(goal.clone());
    Site { key, kind, open, cuttable: !pinned, positions, slices, vanishing }
}

fn existing(worker: &str, kind: &'static Kind, slice: &SliceReport) -> Option<Spot> {
    let position = match slice.position.as_str() {
        WHOLE => kind.whole(),
        text => kind.position(text).ok()?,
    };
    let (text, profile) = (slice.position.clone(), slice.profile.clone());
    let label = labelled(worker, &slice.slice);
    Some(Spot { position, text, label, profile, doomed: false, lent: false })
}

fn planned(key: &GpuKey, position: Position) -> Spot {
    let profile = position.profile().name.clone();
    let label = labelled(&key.0, &mig::slice_label(key.1 as usize, position));
    Spot { position, text: position.to_string(), label, profile, doomed: false, lent: false }
}

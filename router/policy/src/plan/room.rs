//! Where on the GPUs there is room for one slice more.

use std::collections::{BTreeMap, BTreeSet};

use mig::{Geometry, Position};

use super::{Slice, hardware::Hardware};

#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) gpu: usize,
    pub(super) slot: usize,
    pub(super) position: Position,
}

/// What may be done on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub empty: Vec<Position>,
    /// Whether it can be cut otherwise than it is.
    pub cuttable: bool,
    /// Whether anything new may be put there at all.
    pub open: bool,
}

/// GPUs by how they are cut: those cut alike offer the same.
pub(super) struct Room<'a> {
    hardware: &'a Hardware,
    alike: BTreeMap<Cut, BTreeSet<usize>>,
    /// What GPUs cut so can still have.
    offers: BTreeMap<Cut, Vec<(Position, usize, u8)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cut {
    pool: usize,
    taken: u64,
    empty: u64,
    allowed: u64,
}

impl<'a> Room<'a> {
    pub(super) fn new(
        hardware: &'a Hardware,
        slices: &[Slice],
        sites: &BTreeMap<usize, Site>,
    ) -> Self {
        let mut masks: BTreeMap<usize, u64> = BTreeMap::new();
        for slice in slices {
            let pool = hardware.pools.iter().find(|pool| pool.kind.name == slice.kind);
            let bit = pool.map_or(0, |pool| pool.bit(slice.position));
            *masks.entry(slice.gpu).or_insert(0) |= bit;
        }
        let mut alike: BTreeMap<Cut, BTreeSet<usize>> = BTreeMap::new();
        for (pool, limit) in hardware.limits().into_iter().enumerate() {
            let of_kind = &hardware.pools[pool];
            let used = of_kind.gpus.iter().filter(|gpu| masks.contains_key(gpu)).count();
            let mut unused = (limit as usize).saturating_sub(used);
            for gpu in &of_kind.gpus {
                let taken = masks.get(gpu).copied().unwrap_or(0);
                let site = sites.get(gpu);
                let open = site.is_none_or(|site| site.open);
                if !open || (taken == 0 && unused == 0) {
                    continue;
                }
                unused -= usize::from(taken == 0);
                let empty = site.map_or(0, |site| {
                    site.empty.iter().map(|position| of_kind.bit(*position)).sum()
                });
                let cuttable = site.is_none_or(|site| site.cuttable);
                let allowed = if cuttable { u64::MAX } else { empty };
                alike.entry(Cut { pool, taken, empty, allowed }).or_default().insert(*gpu);
            }
        }
        Self { hardware, alike, offers: BTreeMap::new() }
    }

    /// The best slice for a model of such capacities that lacks `rate_rps`.
    ///
    /// One that is enough, and of those the smallest; else the one that gives most. Of equals one that
    /// is there already, then the one that leaves the largest region free, then the lowest index.
    pub(super) fn best(
        &mut self,
        capacities: &[f64],
        rate_rps: f64,
        in_use_first: bool,
    ) -> Option<Offer> {
        let mut best: Option<(Rank, Offer)> = None;
        for (cut, gpus) in &self.alike {
            let Some(gpu) = gpus.first() else { continue };
            let offers =
                self.offers.entry(*cut).or_insert_with(|| offers(self.hardware, *cut)).iter();
            for (position, slot, left) in offers {
                if capacities[*slot] <= 0.0 {
                    continue;
                }
                let offer = Offer { gpu: *gpu, slot: *slot, position: *position };
                let rank = Rank {
                    opens: (cut.taken == 0) == in_use_first,
                    gives: capacities[*slot].min(rate_rps.max(0.0)),
                    size: (position.profile().memory_slices, position.profile().compute_slices),
                    new: self.hardware.pools[cut.pool].bit(*position) & cut.empty == 0,
                    left: *left,
                    gpu: *gpu,
                };
                if best.as_ref().is_none_or(|(known, _)| rank.beats(known)) {
                    best = Some((rank, offer));
                }
            }
        }
        best.map(|(_, offer)| offer)
    }

    pub(super) fn take(&mut self, offer: &Offer) {
        let of = |(cut, gpus): (&Cut, &BTreeSet<usize>)| gpus.contains(&offer.gpu).then_some(*cut);
        let Some(cut) = self.alike.iter().find_map(of) else { return };
        if let Some(gpus) = self.alike.get_mut(&cut) {
            gpus.remove(&offer.gpu);
        }
        let bit = self.hardware.pools[cut.pool].bit(offer.position);
        let after = Cut { taken: cut.taken | bit, empty: cut.empty & !bit, ..cut };
        let after = Cut { allowed: after.allowed & !bit, ..after };
        self.alike.entry(after).or_default().insert(offer.gpu);
    }
}

struct Rank {
    opens: bool,
    gives: f64,
    size: (u8, u8),
    new: bool,
    left: u8,
    gpu: usize,
}

impl Rank {
    fn beats(&self, other: &Self) -> bool {
        let order = self
            .opens
            .cmp(&other.opens)
            .then(other.gives.total_cmp(&self.gives))
            .then(self.size.cmp(&other.size))
            .then(self.new.cmp(&other.new))
            .then(other.left.cmp(&self.left))
            .then(self.gpu.cmp(&other.gpu));
        order.is_lt()
    }
}

/// The positions that a GPU cut so can still have, their types, and the largest region each leaves.
fn offers(hardware: &Hardware, cut: Cut) -> Vec<(Position, usize, u8)> {
    let of_kind = &hardware.pools[cut.pool];
    let positions = of_kind.kind.positions();
    let taken = positions.iter().filter(|position| of_kind.bit(**position) & cut.taken != 0);
    let Ok(geometry) = Geometry::new(of_kind.kind, taken.copied().collect()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let plain = positions.iter().filter(|position| !position.profile().media);
    for position in plain.filter(|position| of_kind.bit(**position) & cut.allowed != 0) {
        let slot = hardware.slot(cut.pool, position.profile());
        if let (Ok(after), Some(slot)) = (geometry.with(*position), slot) {
            found.push((*position, slot, largest_free(&after)));
        }
    }
    found
}

/// Memory slices of the largest slice a GPU can still have.
fn largest_free(geometry: &Geometry) -> u8 {
    let positions = geometry.kind().positions();
    let free = positions.iter().filter(|position| geometry.has_room_for(**position));
    free.map(|position| position.profile().memory_slices).max().unwrap_or(0)
}

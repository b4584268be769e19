//! Packs what does not fill a slot of its own together with what remains of others.
//!
//! Nexus calls this squishy bin packing: a batch shrinks to fit its turn. A remainder goes whole into
//! one slot if it can, else another makes room for it, else it is split.

use super::{
    cycle::{self, Turn},
    fill::Terms,
};

/// Candidates for a remainder that are tried in full, best first.
const TRIES: usize = 12;
/// The most slots a remainder is split over.
const MOST_PARTS: u32 = 6;
/// How much is tried to make room by moving another.
const DISPLACING_WORK: u64 = 200;
/// No part of a remainder is smaller.
const LEAST_PART: f64 = 0.02;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Where least is left over.
    Tight,
    /// Where it takes least away.
    Cheap,
}

#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) slot: usize,
    /// Model and requests per second.
    pub(super) tenants: Vec<(usize, f64)>,
    /// The part of its time that is taken, roughly.
    busy: f64,
    rows: f64,
    starts_ms: f64,
    limit_ms: f64,
}

/// What remains of a model after its whole slots, or a part of that.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) model: usize,
    pub(super) rate_rps: f64,
    pub(super) worth: f64,
    /// Slots it may be split over.
    pub(super) replicas: u32,
}

pub(super) struct Packing<'a> {
    pub(super) terms: &'a Terms<'a>,
    pub(super) prices: Vec<f64>,
    pub(super) free: Vec<u32>,
    pub(super) fit: Fit,
    pub(super) open: Vec<Shared>,
    pub(super) work: u64,
}

impl Packing<'_> {
    /// Finds room for a piece, all of it or nothing said of the rest.
    pub(super) fn place(&mut self, piece: &Piece) -> Option<()> {
        let mut rest = piece.rate_rps;
        if self.place_whole(piece.model, rest) || self.displace(piece.model, rest) {
            return Some(());
        }
        for _ in 1..piece.replicas.min(MOST_PARTS) {
            rest -= self.place_part(piece.model, rest)?;
            if self.place_whole(piece.model, rest) {
                return Some(());
            }
        }
        None
    }

    /// Puts all of `rate_rps` into an open slot from which another can move elsewhere.
    fn displace(&mut self, model: usize, rate_rps: f64) -> bool {
        let until = self.work + DISPLACING_WORK;
        for index in 0..self.open.len() {
            for out in 0..self.open[index].tenants.len() {
                if self.work > until {
                    return false;
                }
                let open = &self.open[index];
                let (other, other_rps) = open.tenants[out];
                let mut tenants = open.tenants.clone();
                tenants.remove(out);
                if other == model || tenants.iter().any(|(tenant, _)| *tenant == model) {
                    continue;
                }
                tenants.push((model, rate_rps));
                if !self.works(open.slot, &tenants) {
                    continue;
                }
                let before = self.open[index].clone();
                let after = self.terms.shared(before.slot, tenants);
                self.open[index] = after;
                if self.place_whole(other, other_rps) {
                    return true;
                }
                self.open[index] = before;
            }
        }
        false
    }

    /// Puts all of `rate_rps` into one slot, open or new.
    fn place_whole(&mut self, model: usize, rate_rps: f64) -> bool {
        let mut candidates: Vec<(f64, usize, bool)> = Vec::new();
        for (index, open) in self.open.iter().enumerate() {
            if let Some(after) = self.terms.busier(open, model, rate_rps) {
                candidates.push((self.score(open.slot, open.busy, after), index, true));
            }
        }
        for slot in (0..self.free.len()).filter(|slot| self.free[*slot] > 0) {
            let capacity = self.terms.demand.table.capacity(model, slot);
            if capacity > 0.0 && rate_rps <= capacity * (1.0 + 1e-9) {
                candidates.push((self.score(slot, 0.0, rate_rps / capacity), slot, false));
            }
        }
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.2.cmp(&a.2)).then(a.1.cmp(&b.1)));
        let mut tries = 0;
        for (_, index, open) in candidates {
            if !open {
                self.start(index, model, rate_rps);
                return true;
            }
            tries += 1;
            if tries <= TRIES && self.fits(index, model, rate_rps) {
                self.join(index, model, rate_rps);
                return true;
            }
        }
        false
    }

    fn score(&self, slot: usize, before: f64, after: f64) -> f64 {
        let price = self.prices[slot];
        let (cost, idle) = (price * (after - before), price * (1.0 - after).max(0.0));
        match self.fit {
            Fit::Tight => cost + 0.3 * idle,
            Fit::Cheap => cost + 0.03 * idle,
        }
    }

    /// Puts as much as possible of `rate_rps` where most of it fits.
    fn place_part(&mut self, model: usize, rate_rps: f64) -> Option<f64> {
        let mut best: Option<(f64, usize, bool)> = None;
        for slot in (0..self.free.len()).filter(|slot| self.free[*slot] > 0) {
            let capacity = self.terms.demand.table.capacity(model, slot).min(rate_rps);
            if capacity > best.map_or(0.0, |(most, ..)| most) {
                best = Some((capacity, slot, false));
            }
        }
        for index in self.roomiest(model) {
            let least = best.map_or(rate_rps * LEAST_PART, |(most, ..)| most);
            if self.terms.busier(&self.open[index], model, least).is_some() {
                let most = self.most(index, model, (least, rate_rps));
                if most > least {
                    best = Some((most, index, true));
                }
            }
        }
        let (part, index, open) = best?;
        if open {
            self.join(index, model, part);
        } else {
            self.start(index, model, part);
        }
        Some(part)
    }

    /// The open slots with most room for `model`, roughly.
    fn roomiest(&self, model: usize) -> Vec<usize> {
        let mut rooms: Vec<(f64, usize)> = Vec::new();
        for (index, open) in self.open.iter().enumerate() {
            if let Some(busy) = self.terms.busier(open, model, 0.0) {
                let peak = self.terms.demand.table.curve(model, open.slot).peak_rps();
                rooms.push(((1.0 - busy) * peak, index));
            }
        }
        rooms.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        rooms.into_iter().take(TRIES).map(|(_, index)| index).collect()
    }

    /// Takes a free slot for `rate_rps` of `model`.
    pub(super) fn start(&mut self, slot: usize, model: usize, rate_rps: f64) {
        self.free[slot] -= 1;
        self.open.push(self.terms.shared(slot, vec![(model, rate_rps)]));
    }

    fn join(&mut self, index: usize, model: usize, rate_rps: f64) {
        let open = &mut self.open[index];
        let mut tenants = std::mem::take(&mut open.tenants);
        tenants.push((model, rate_rps));
        *open = self.terms.shared(open.slot, tenants);
    }

    fn fits(&mut self, index: usize, model: usize, rate_rps: f64) -> bool {
        let open = &self.open[index];
        let mut tenants = open.tenants.clone();
        tenants.push((model, rate_rps));
        let slot = open.slot;
        self.works(slot, &tenants)
    }

    fn works(&mut self, slot: usize, tenants: &[(usize, f64)]) -> bool {
        self.work += 1;
        match tenants {
            [(model, rate_rps)] => *rate_rps <= self.terms.demand.table.capacity(*model, slot),
            several => self.terms.round(slot, several).is_some(),
        }
    }

    /// The most within `range` that fits beside those already there; 0 if not even the least does.
    fn most(&mut self, index: usize, model: usize, range: (f64, f64)) -> f64 {
        let (mut works, mut fails) = range;
        if !self.fits(index, model, works) {
            return 0.0;
        }
        for _ in 0..8 {
            let middle = (works + fails) / 2.0;
            if self.fits(index, model, middle) {
                works = middle;
            } else {
                fails = middle;
            }
        }
        works
    }
}

impl Terms<'_> {
    /// A slot with these tenants, and how busy it would be, roughly: the time of the rows at the
    /// best rate, and that of starting each batch once in the time the tightest objective leaves.
    fn shared(&self, slot: usize, tenants: Vec<(usize, f64)>) -> Shared {
        let mut shared =
            Shared { slot, tenants, busy: 0.0, rows: 0.0, starts_ms: 0.0, limit_ms: f64::MAX };
        for (model, rate_rps) in &shared.tenants {
            let (rows, start_ms, limit_ms) = self.turn(*model, slot, *rate_rps);
            shared.rows += rows;
            shared.starts_ms += start_ms;
            shared.limit_ms = shared.limit_ms.min(limit_ms);
        }
        shared.busy = shared.rows + shared.starts_ms / shared.limit_ms;
        shared
    }

    fn turn(&self, model: usize, slot: usize, rate_rps: f64) -> (f64, f64, f64) {
        let curve = self.demand.table.curve(model, slot);
        let limit_ms = 2.0 * self.latency_share * self.demand.models[model].slo_ms;
        (rate_rps / curve.peak_rps(), curve.start_ms(), limit_ms)
    }

    /// How busy `open` would be with `rate_rps` of `model` more; nothing if it plainly cannot be.
    fn busier(&self, open: &Shared, model: usize, rate_rps: f64) -> Option<f64> {
        let (rows, start_ms, limit_ms) = self.turn(model, open.slot, rate_rps);
        let admits = open.tenants.len() < cycle::MOST
            && open.tenants.iter().all(|(tenant, _)| *tenant != model);
        (admits && open.rows + rows <= 1.0).then(|| {
            let limit_ms = open.limit_ms.min(limit_ms);
            open.rows + rows + (open.starts_ms + start_ms) / limit_ms
        })
    }

    /// The round of these tenants on one slot, if it keeps every objective and fits the memory.
    pub(super) fn round(&self, slot: usize, tenants: &[(usize, f64)]) -> Option<cycle::Round> {
        let turns: Vec<Turn<'_>> = tenants
            .iter()
            .map(|(model, rate_rps)| Turn {
                curve: self.demand.table.curve(*model, slot),
                rate_rps: *rate_rps,
                limit_ms: 2.0 * self.latency_share * self.demand.models[*model].slo_ms,
            })
            .collect();
        let round = cycle::shortest(&turns)?;
        let needed = tenants.iter().zip(&round.batches);
        let needed: f64 =
            needed.map(|((model, _), batch)| self.demand.table.memory_mib(*model, *batch)).sum();
        let available = self.hardware.slots[slot].profile.memory_gib * 1024.0;
        (needed <= available).then_some(round)
    }
}

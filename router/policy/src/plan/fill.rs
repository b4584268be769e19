//! Puts models into a given number of slots of each type.
//!
//! Each model in turn takes its cheapest cover of the slots that are left. Where slices may be shared,
//! a cover may end in a part of a slot: that piece is packed with those of others.

use super::{
    MANY,
    cover::{COVER_WORK, Cover},
    hardware::Hardware,
    master::{Supplies, Supply},
    pack::{Fit, Packing, Piece, Shared},
    relax::{Demand, Hint, ROUGH, relax},
};

/// How often the models are placed anew, those left out first.
const ATTEMPTS: u32 = 6;
/// As many slots as anyone may want.
const ANY: u32 = u32::MAX / 2;
/// A slot this full is not worth sharing.
const FULL: f64 = 0.95;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Who would lose most by taking its second choice.
    Regret,
    /// Who needs most.
    Size,
    /// Who has least time.
    Objective,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) order: Order,
    pub(super) fit: Fit,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Filling {
    /// Model, slot and how many it has to itself.
    pub(super) whole: Vec<(usize, usize, u32)>,
    /// Slots that hold remainders, one model or several.
    pub(super) shared: Vec<Shared>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    pub(super) demand: Demand<'a>,
    pub(super) hardware: &'a Hardware,
    pub(super) prices: &'a [f64],
    pub(super) latency_share: f64,
}

/// Fills `free` slots, or gives up; takes what it does from `work`.
///
/// Who found no room goes first the next time.
pub(super) fn fill(
    terms: &Terms<'_>,
    free: &[u32],
    manner: Manner,
    work: &mut u64,
) -> Option<Filling> {
    let mut order = order(terms, manner.order);
    let mut urgency = vec![0_u32; terms.demand.models.len()];
    for _ in 0..ATTEMPTS {
        let packing = Packing {
            terms,
            prices: terms.prices.to_vec(),
            free: free.to_vec(),
            fit: manner.fit,
            open: Vec::new(),
            work: order.len() as u64,
        };
        let reserved = vec![0.0; free.len()];
        let mut attempt = Attempt { packing, reserved, whole: Vec::new() };
        let left_out = attempt.run(&order, &urgency);
        *work = work.saturating_sub(attempt.packing.work);
        if left_out.is_empty() {
            return Some(Filling { whole: attempt.whole, shared: attempt.packing.open });
        }
        if *work == 0 || left_out.len() > order.len().max(12) / 3 {
            return None;
        }
        for model in left_out {
            urgency[model] += 1;
        }
        order.sort_by_key(|model| std::cmp::Reverse(urgency[*model]));
    }
    None
}

/// Gives every model the cover it has, of as many slots as it takes.
pub(super) fn settle(terms: &Terms<'_>, covers: &[(usize, &Cover)]) -> Option<Filling> {
    let slots = terms.demand.slots;
    let packing = Packing {
        terms,
        prices: terms.prices.to_vec(),
        free: vec![ANY; slots],
        fit: Fit::Tight,
        open: Vec::new(),
        work: 0,
    };
    let mut attempt = Attempt { packing, reserved: vec![0.0; slots], whole: Vec::new() };
    let mut pieces = Vec::new();
    for (model, cover) in covers {
        if terms.demand.shared() {
            attempt.take_partly(*model, cover, &mut pieces);
        } else {
            attempt.take(*model, cover);
        }
    }
    let left_out = attempt.place(pieces, &vec![0; terms.demand.models.len()]);
    let filling = Filling { whole: attempt.whole, shared: attempt.packing.open };
    left_out.is_empty().then_some(filling)
}

/// The models in the order in which they choose.
fn order(terms: &Terms<'_>, order: Order) -> Vec<usize> {
    let mut keyed: Vec<(f64, usize)> = (0..terms.demand.models.len())
        .map(|model| {
            let costs = costs(terms, terms.prices, model);
            let cheapest = costs.first().map_or(0.0, |(cost, _)| *cost);
            let second = costs.get(1).map_or(f64::MAX, |(cost, _)| *cost);
            let rate = terms.demand.rate_rps(model);
            let key = match order {
                Order::Regret => -(second - cheapest) * rate,
                Order::Size => -cheapest * rate,
                Order::Objective => terms.demand.models[model].slo_ms,
            };
            (key, model)
        })
        .collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    keyed.into_iter().map(|(_, model)| model).collect()
}

/// The price of a request per second on each slot that can serve the model, cheapest first.
fn costs(terms: &Terms<'_>, prices: &[f64], model: usize) -> Vec<(f64, usize)> {
    let mut costs: Vec<(f64, usize)> = (0..terms.demand.slots)
        .filter_map(|slot| {
            let capacity = terms.demand.table.capacity(model, slot);
            (capacity > 0.0).then(|| (prices[slot] / capacity, slot))
        })
        .collect();
    costs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    costs
}

struct Attempt<'a> {
    packing: Packing<'a>,
    /// Slots that pieces still to be packed will need.
    reserved: Vec<f64>,
    whole: Vec<(usize, usize, u32)>,
}

impl Attempt<'_> {
    /// Places everyone it can, and says whom it could not.
    fn run(&mut self, order: &[usize], urgency: &[u32]) -> Vec<usize> {
        let mut left_out = Vec::new();
        let mut pieces = Vec::new();
        let shared = self.packing.terms.demand.shared();
        let part = if order.len() > MANY { 2 } else { 4 };
        let mut reprice_at = order.len() / part;
        for (index, model) in order.iter().enumerate() {
            if index > 0 && index == reprice_at {
                self.reprice(&order[index..]);
                reprice_at += ((order.len() - index) / part).max(1);
            }
            match self.cover(*model) {
                Some(cover) if shared => self.take_partly(*model, &cover, &mut pieces),
                Some(cover) => self.take(*model, &cover),
                None => left_out.push(*model),
            }
        }
        left_out.extend(self.place(pieces, urgency));
        left_out
    }

    /// Packs the pieces, the urgent and then the largest first, and says whose found no room.
    fn place(&mut self, mut pieces: Vec<Piece>, urgency: &[u32]) -> Vec<usize> {
        pieces.sort_by(|a, b| {
            let urgency = urgency[b.model].cmp(&urgency[a.model]);
            urgency.then(b.worth.total_cmp(&a.worth)).then(a.model.cmp(&b.model))
        });
        pieces.retain(|piece| self.packing.place(piece).is_none());
        pieces.into_iter().map(|piece| piece.model).collect()
    }

    /// Asks what the slots still free are worth to those not yet placed.
    fn reprice(&mut self, left: &[usize]) {
        let available = self.available();
        let supplies = [Supply { counts: &available, pool: None }];
        let demand = Demand { only: left, ..self.packing.terms.demand };
        let supplies = Supplies { each: &supplies, limits: &[] };
        let hint = Hint { prices: &self.packing.prices, purchases: &[] };
        if let Some(relaxed) = relax(&demand, &supplies, hint, ROUGH) {
            self.packing.work += demand.work(relaxed.rounds);
            self.packing.prices = relaxed.prices;
        }
    }

    fn cover(&mut self, model: usize) -> Option<Cover> {
        self.packing.work += COVER_WORK;
        let available = self.available();
        let Packing { terms, prices, .. } = &self.packing;
        terms.demand.cheapest(model, prices, Some(&available))
    }

    fn available(&self) -> Vec<u32> {
        let each = self.packing.free.iter().zip(&self.reserved);
        each.map(|(free, reserved)| free.saturating_sub(reserved.round() as u32)).collect()
    }

    fn take(&mut self, model: usize, cover: &Cover) {
        for (slot, count) in &cover.slots {
            self.packing.free[*slot] -= count;
            self.whole.push((model, *slot, *count));
        }
    }

    /// Takes a cover, largest slots first. What remains for a part of a slot becomes a piece; else
    /// the last slot stays open to others.
    fn take_partly(&mut self, model: usize, cover: &Cover, pieces: &mut Vec<Piece>) {
        let terms = self.packing.terms;
        let mut rest = terms.demand.rate_rps(model);
        let mut slots: Vec<(f64, usize, u32)> = cover
            .slots
            .iter()
            .map(|(slot, count)| (terms.demand.table.capacity(model, *slot), *slot, *count))
            .collect();
        slots.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut taken = 0;
        for (capacity, slot, count) in slots {
            let full = ((rest / capacity - FULL + 1.0) as u32).min(count);
            if full > 0 {
                self.packing.free[slot] -= full;
                self.whole.push((model, slot, full));
                rest = (rest - f64::from(full) * capacity).max(0.0);
            }
            for _ in full..count {
                let part = rest.min(capacity);
                self.packing.start(slot, model, part);
                rest -= part;
            }
            taken += count;
        }
        if let Some((slot, count)) = cover.part {
            self.reserved[slot] += count;
        }
        self.leave(model, rest, taken, pieces);
    }

    /// Adds what remains of a model to `pieces`, in as many as the fewest replicas need.
    fn leave(&self, model: usize, rest: f64, taken: u32, pieces: &mut Vec<Piece>) {
        let (min, max) = self.packing.terms.demand.wants[model].replicas;
        if rest <= 1e-9 && taken >= min {
            return;
        }
        let cheapest = self.cheapest_rps(model);
        let parts = min.saturating_sub(taken).max(1);
        let rate_rps = rest / f64::from(parts);
        let replicas = max.saturating_sub(taken.saturating_add(parts)).saturating_add(1);
        for _ in 0..parts {
            pieces.push(Piece { model, rate_rps, worth: rate_rps * cheapest, replicas });
        }
    }

    /// What a request per second costs the model at least.
    fn cheapest_rps(&self, model: usize) -> f64 {
        let costs = costs(self.packing.terms, &self.packing.prices, model);
        costs.first().map_or(0.0, |(cost, _)| *cost)
    }
}

//! Prices of slots, and a bound on the GPUs any plan needs.
//!
//! Suppose every type of slot had a price. Each model would then buy what serves it most cheaply,
//! one model at a time, and no plan could cost less than all of them together. The prices that make
//! this bound highest are those of a linear program with one row a type of slot: it has the same
//! size for ten GPUs or ten thousand, and its columns are what all models together would buy at
//! some prices, found as they are needed (Dantzig and Wolfe). Where a slice may be shared, a model
//! may buy fractions of a slot; else it buys whole ones, and the bound is the better for it.

use super::{
    Model,
    capacity::Table,
    cover::{self, COVER_WORK, Cover, Need, Turns},
    master::{Master, Purchase, Relaxed, Supplies},
};

const PIVOTS: u32 = 5_000;
/// What the program itself counts as in each round.
const ROUND_WORK: u64 = 200;

/// How models may buy slots.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buying<'a> {
    /// Whole ones.
    Whole,
    /// Any fraction, each worth as much of a whole one.
    Fractions,
    /// Whole ones, and parts of some where turns are taken, worth this much, model by model.
    Turns(&'a [Turns]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) rate_rps: f64,
    /// The fewest slots and the most.
    pub(super) replicas: (u32, u32),
}

impl Want {
    /// All that `model` wants.
    pub(super) fn all(model: &Model) -> Self {
        let Model { demand_rps, replicas_min, replicas_max, .. } = *model;
        Self { rate_rps: demand_rps, replicas: (replicas_min, replicas_max) }
    }

    /// What is left once it has so many slots of such capacity.
    pub(super) fn without(self, count: u32, capacity_rps: f64) -> Self {
        let (min, max) = self.replicas;
        Self {
            rate_rps: (self.rate_rps - f64::from(count) * capacity_rps).max(0.0),
            replicas: (min.saturating_sub(count), max.saturating_sub(count)),
        }
    }
}

/// What is to be served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand<'a> {
    pub(super) models: &'a [Model],
    pub(super) table: &'a Table,
    pub(super) slots: usize,
    /// Those of the models that are to be served.
    pub(super) only: &'a [usize],
    pub(super) buying: Buying<'a>,
    /// What each model still wants.
    pub(super) wants: &'a [Want],
}

impl Demand<'_> {
    /// What asking every model `rounds` times counts as.
    pub(super) fn work(&self, rounds: u32) -> u64 {
        let each = if let Buying::Fractions = self.buying { 1 } else { COVER_WORK };
        (self.only.len() as u64 * each + ROUND_WORK) * u64::from(rounds)
    }

    pub(super) fn rate_rps(&self, model: usize) -> f64 {
        self.wants[model].rate_rps
    }

    /// Whether one slot may serve several models.
    pub(super) fn shared(&self) -> bool {
        !matches!(self.buying, Buying::Whole)
    }

    /// The cheapest slots for one model, and parts of slots where those are sold.
    pub(super) fn cheapest(
        &self,
        model: usize,
        prices: &[f64],
        available: Option<&[u32]>,
    ) -> Option<Cover> {
        let own = model * self.slots..(model + 1) * self.slots;
        let turns = match self.buying {
            Buying::Whole | Buying::Fractions => None,
            Buying::Turns(turns) => Some(&turns[own]),
        };
        let need = Need {
            demand_rps: self.rate_rps(model),
            capacities: self.table.capacities_of(model),
            replicas: self.wants[model].replicas,
            turns,
        };
        cover::cheapest(&need, prices, available)
    }
}

/// When prices are good enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accuracy {
    /// At this distance from the bound, as a part of the cost.
    pub(super) part: f64,
    /// Or after so many rounds.
    pub(super) rounds: u32,
}

/// Enough for the load of given slots.
pub(super) const ROUGH: Accuracy = Accuracy { part: 2e-3, rounds: 40 };

/// Where to start looking for prices.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hint<'a> {
    /// Of each slot, if any are likely.
    pub(super) prices: &'a [f64],
    /// Purchases that serve the same demand.
    pub(super) purchases: &'a [(f64, Purchase)],
}

/// Finds the prices. Nothing if some model cannot be served by any slots.
///
/// New purchases are asked for at prices half way between the best so far and those the program
/// now has, because the latter swing widely at first.
pub(super) fn relax(
    demand: &Demand<'_>,
    supplies: &Supplies<'_>,
    hint: Hint<'_>,
    accuracy: Accuracy,
) -> Option<Relaxed> {
    let mut master = Master::new(demand.slots, supplies);
    for (_, purchase) in hint.purchases {
        master.add(purchase.clone());
    }
    let likely = (hint.prices.len() == demand.slots).then(|| hint.prices.to_vec());
    if hint.purchases.is_empty() {
        let equal = || vec![1.0 / demand.slots as f64; demand.slots];
        master.add(purchase(demand, &likely.unwrap_or_else(equal))?);
    }
    let mut best: Option<Vec<f64>> = None;
    let mut steady = true;
    let mut bound = 0.0_f64;
    let mut rounds = 1;
    while rounds < accuracy.rounds {
        rounds += 1;
        master.program.solve(PIVOTS);
        let prices = master.prices();
        let half_way =
            |best: &Vec<f64>| best.iter().zip(&prices).map(|(a, b)| (a + b) / 2.0).collect();
        let stepped = steady && best.is_some();
        let point: Vec<f64> =
            best.as_ref().filter(|_| steady).map_or_else(|| prices.clone(), half_way);
        let purchase = purchase(demand, &point[..demand.slots])?;
        let proven = purchase.least_cost - master.rent(&point);
        if proven > bound {
            bound = proven;
            best = Some(point);
        }
        let cost = master.program.cost();
        if cost - bound <= accuracy.part * cost.max(1.0) {
            break;
        }
        steady = master.gains_by(&purchase, &prices);
        if steady {
            master.add(purchase);
        } else if !stepped {
            break;
        }
    }
    Some(master.into_relaxed(bound, rounds))
}

fn purchase(demand: &Demand<'_>, prices: &[f64]) -> Option<Purchase> {
    let mut total =
        Purchase { slots: vec![0.0; demand.slots], covers: Vec::new(), least_cost: 0.0 };
    for model in demand.only.iter().copied() {
        if let Buying::Fractions = demand.buying {
            buy_fractions(demand, model, prices, &mut total)?;
            continue;
        }
        let cover = demand.cheapest(model, prices, None)?;
        total.least_cost += cover.least_cost;
        for (slot, count) in cover.counts() {
            total.slots[slot] += count;
        }
        total.covers.push((model, cover));
    }
    Some(total)
}

/// Buys the cheapest fractions of slots, of no more slots than the model may have replicas.
fn buy_fractions(
    demand: &Demand<'_>,
    model: usize,
    prices: &[f64],
    total: &mut Purchase,
) -> Option<()> {
    let rate = demand.rate_rps(model);
    let most = f64::from(demand.wants[model].replicas.1);
    let mut best: Option<(f64, [(usize, f64); 2])> = None;
    let mut offer = |cost: f64, slots: [(usize, f64); 2]| {
        if best.as_ref().is_none_or(|(least, _)| cost < least - 1e-12) {
            best = Some((cost, slots));
        }
    };
    let capacities = demand.table.capacities_of(model);
    let capacity = |slot: usize| capacities[slot];
    let usable = || (0..demand.slots).filter(|slot| capacity(*slot) > 0.0);
    for slot in usable() {
        let count = rate / capacity(slot);
        if count <= most {
            offer(count * prices[slot], [(slot, count), (slot, 0.0)]);
        }
    }
    for small in usable().filter(|slot| rate / capacity(*slot) > most) {
        for large in usable().filter(|slot| rate / capacity(*slot) < most) {
            let count = (rate - most * capacity(small)) / (capacity(large) - capacity(small));
            let cost = count * prices[large] + (most - count) * prices[small];
            offer(cost, [(large, count), (small, most - count)]);
        }
    }
    let (cost, bought) = best?;
    total.least_cost += cost;
    for (slot, count) in bought {
        total.slots[slot] += count;
    }
    Some(())
}

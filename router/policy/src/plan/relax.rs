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
    simplex::Simplex,
};

/// A GPU more than the fleet has costs this many that it has.
const BEYOND_FLEET: f64 = 100.0;
/// A slot from nowhere; dearer than a GPU beyond the fleet.
const FROM_NOWHERE: f64 = 1_000.0;
/// Buying nothing; must never pay.
const NOT_SERVED: f64 = 1e12;
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

/// What a model still wants.
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

/// Something that gives slots.
#[derive(Clone, Debug)]
pub(super) struct Supply<'a> {
    pub(super) counts: &'a [u32],
    /// Which limit it counts against.
    pub(super) pool: Option<usize>,
}

/// The solution of the relaxed program.
#[derive(Clone, Debug)]
pub(super) struct Relaxed {
    /// Of each slot.
    pub(super) prices: Vec<f64>,
    /// No plan uses fewer supplies.
    pub(super) bound: f64,
    /// How often all models were asked.
    pub(super) rounds: u32,
    /// How much of each supply is used.
    pub(super) used: Vec<f64>,
    /// Slots of each type wanted.
    pub(super) wanted: Vec<f64>,
    /// Model, slot and how many of it, on average over the purchases in use.
    pub(super) picks: Vec<(usize, usize, f64)>,
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

/// What all models together would buy.
struct Purchase {
    slots: Vec<f64>,
    /// Model, slot and how many of it.
    picks: Vec<(usize, usize, f64)>,
    least_cost: f64,
}

impl Purchase {
    fn pick(&mut self, model: usize, slot: usize, count: f64) {
        self.slots[slot] += count;
        self.picks.push((model, slot, count));
    }
}

/// Finds the prices. Nothing if some model cannot be served by any slots.
///
/// New purchases are asked for at prices half way between the best so far and those the program
/// now has, because the latter swing widely at first.
pub(super) fn relax(
    demand: &Demand<'_>,
    supplies: &[Supply<'_>],
    limits: &[u32],
    accuracy: Accuracy,
) -> Option<Relaxed> {
    let mut master = Master::new(demand.slots, supplies, limits);
    master.add(purchase(demand, &vec![1.0 / demand.slots as f64; demand.slots])?);
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

struct Master {
    program: Simplex,
    slots: usize,
    limits: Vec<u32>,
    supplies: Vec<usize>,
    purchases: Vec<(usize, Purchase)>,
}

impl Master {
    fn new(slots: usize, supplies: &[Supply<'_>], limits: &[u32]) -> Self {
        let rows = slots + limits.len() + 1;
        let mut costs = vec![FROM_NOWHERE; slots];
        costs.resize(rows - 1, 0.0);
        costs.push(NOT_SERVED);
        let mut right = vec![0.0; slots];
        right.extend(limits.iter().map(|limit| f64::from(*limit)));
        right.push(1.0);
        let mut program = Simplex::new(&costs, &right);
        let unit = |row: usize, value: f64| {
            let mut entries = vec![0.0; rows];
            entries[row] = value;
            entries
        };
        for slot in 0..slots {
            program.add(0.0, unit(slot, -1.0));
        }
        for pool in 0..limits.len() {
            program.add(BEYOND_FLEET, unit(slots + pool, -1.0));
        }
        let supply = |supply: &Supply<'_>| {
            let mut entries = vec![0.0; rows];
            for (entry, count) in entries.iter_mut().zip(supply.counts) {
                *entry = f64::from(*count);
            }
            if let Some(pool) = supply.pool {
                entries[slots + pool] = 1.0;
            }
            program.add(1.0, entries)
        };
        let supplies = supplies.iter().map(supply).collect();
        Self { program, slots, limits: limits.to_vec(), supplies, purchases: Vec::new() }
    }

    fn add(&mut self, purchase: Purchase) {
        let mut entries: Vec<f64> = purchase.slots.iter().map(|count| -count).collect();
        entries.resize(self.slots + self.limits.len(), 0.0);
        entries.push(1.0);
        let last = entries.len() - 1;
        let column = self.program.add(0.0, entries);
        if self.purchases.is_empty() {
            self.program.force(column, last);
        }
        self.purchases.push((column, purchase));
    }

    /// Of each slot, and then the rent of each limit.
    fn prices(&self) -> Vec<f64> {
        let prices = self.program.prices();
        let of = |(row, price): (usize, &f64)| if row < self.slots { *price } else { -price };
        let priced = &prices[..self.slots + self.limits.len()];
        priced.iter().enumerate().map(of).map(|price| price.max(0.0)).collect()
    }

    /// What the limits themselves are worth.
    fn rent(&self, prices: &[f64]) -> f64 {
        let rents = prices[self.slots..].iter().zip(&self.limits);
        rents.map(|(rent, limit)| rent * f64::from(*limit)).sum()
    }

    /// Whether the purchase is cheaper than those in use.
    fn gains_by(&self, purchase: &Purchase, prices: &[f64]) -> bool {
        let cost: f64 = purchase.slots.iter().zip(prices).map(|(count, price)| count * price).sum();
        let spent = self.program.prices().last().copied().unwrap_or_default();
        cost < spent - 1e-9
    }

    fn into_relaxed(self, bound: f64, rounds: u32) -> Relaxed {
        let mut wanted = vec![0.0; self.slots];
        let mut picks = Vec::new();
        for (column, purchase) in &self.purchases {
            let part = self.program.value(*column);
            if part > 0.0 {
                for (model, slot, count) in &purchase.picks {
                    wanted[*slot] += part * count;
                    picks.push((*model, *slot, part * count));
                }
            }
        }
        picks.sort_by_key(|(model, slot, _)| (*model, *slot));
        picks.dedup_by(|next, kept| {
            let same = (next.0, next.1) == (kept.0, kept.1);
            if same {
                kept.2 += next.2;
            }
            same
        });
        Relaxed {
            prices: self.prices()[..self.slots].to_vec(),
            rounds,
            bound,
            used: self.supplies.iter().map(|column| self.program.value(*column)).collect(),
            wanted,
            picks,
        }
    }
}

fn purchase(demand: &Demand<'_>, prices: &[f64]) -> Option<Purchase> {
    let mut total = Purchase { slots: vec![0.0; demand.slots], picks: Vec::new(), least_cost: 0.0 };
    for model in demand.only.iter().copied() {
        if let Buying::Fractions = demand.buying {
            buy_fractions(demand, model, prices, &mut total)?;
            continue;
        }
        let cover = demand.cheapest(model, prices, None)?;
        total.least_cost += cover.least_cost;
        let whole = cover.slots.into_iter().map(|(slot, count)| (slot, f64::from(count)));
        for (slot, count) in whole.chain(cover.part) {
            total.pick(model, slot, count);
        }
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
        total.pick(model, slot, count);
    }
    Some(())
}

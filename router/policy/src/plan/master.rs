//! The linear program of slots and supplies, to which purchases are added as they are found.

use super::{cover::Cover, simplex::Simplex};

/// A GPU more than the fleet has costs this many that it has.
const BEYOND_FLEET: f64 = 100.0;
/// A slot from nowhere; dearer than a GPU beyond the fleet.
const FROM_NOWHERE: f64 = 1_000.0;
/// Buying nothing; must never pay.
const NOT_SERVED: f64 = 1e12;

#[derive(Clone, Debug)]
pub(super) struct Supply<'a> {
    pub(super) counts: &'a [u32],
    pub(super) pool: Option<usize>,
}

/// Everything that gives slots, and how much of it there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supplies<'a> {
    pub(super) each: &'a [Supply<'a>],
    pub(super) limits: &'a [u32],
}

#[derive(Clone, Debug)]
pub(super) struct Relaxed {
    pub(super) prices: Vec<f64>,
    pub(super) bound: f64,
    pub(super) rounds: u32,
    pub(super) used: Vec<f64>,
    pub(super) wanted: Vec<f64>,
    /// The purchases in use and the part each has; together 1.
    pub(super) purchases: Vec<(f64, Purchase)>,
}

#[derive(Clone, Debug)]
pub(super) struct Purchase {
    pub(super) slots: Vec<f64>,
    /// Model by model, unless fractions were bought.
    pub(super) covers: Vec<(usize, Cover)>,
    pub(super) least_cost: f64,
}

pub(super) struct Master {
    pub(super) program: Simplex,
    slots: usize,
    limits: Vec<u32>,
    supplies: Vec<usize>,
    purchases: Vec<(usize, Purchase)>,
}

impl Master {
    pub(super) fn new(slots: usize, supplies: &Supplies<'_>) -> Self {
        let Supplies { each, limits } = *supplies;
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
        let supplies = each.iter().map(supply).collect();
        Self { program, slots, limits: limits.to_vec(), supplies, purchases: Vec::new() }
    }

    pub(super) fn add(&mut self, purchase: Purchase) {
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
    pub(super) fn prices(&self) -> Vec<f64> {
        let prices = self.program.prices();
        let of = |(row, price): (usize, &f64)| if row < self.slots { *price } else { -price };
        let priced = &prices[..self.slots + self.limits.len()];
        priced.iter().enumerate().map(of).map(|price| price.max(0.0)).collect()
    }

    pub(super) fn rent(&self, prices: &[f64]) -> f64 {
        let rents = prices[self.slots..].iter().zip(&self.limits);
        rents.map(|(rent, limit)| rent * f64::from(*limit)).sum()
    }

    /// Whether the purchase is cheaper than those in use.
    pub(super) fn gains_by(&self, purchase: &Purchase, prices: &[f64]) -> bool {
        let cost: f64 = purchase.slots.iter().zip(prices).map(|(count, price)| count * price).sum();
        let spent = self.program.prices().last().copied().unwrap_or_default();
        cost < spent - 1e-9
    }

    pub(super) fn into_relaxed(self, bound: f64, rounds: u32) -> Relaxed {
        let mut wanted = vec![0.0; self.slots];
        let prices = self.prices()[..self.slots].to_vec();
        let used = self.supplies.iter().map(|column| self.program.value(*column)).collect();
        let mut purchases = Vec::new();
        for (column, purchase) in self.purchases {
            let part = self.program.value(column);
            if part > 0.0 {
                for (wanted, count) in wanted.iter_mut().zip(&purchase.slots) {
                    *wanted += part * count;
                }
                purchases.push((part, purchase));
            }
        }
        Relaxed { prices, bound, rounds, used, wanted, purchases }
    }
}

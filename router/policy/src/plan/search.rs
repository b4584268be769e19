//! How many GPUs of which shapes, and who is in their slots.
//!
//! Starting from the fewest GPUs the bound allows, shapes are rounded from the relaxed program and
//! from its neighbours, the most promising first, until one can be filled. The search stops at a
//! budget of work, never at a time, so that it is the same everywhere.

use super::{
    MANY,
    fill::{Filling, Manner, Order, Terms, fill},
    hardware::Hardware,
    pack::Fit,
    relax::{Accuracy, Demand, ROUGH, Relaxed, Supply, relax},
};

const ACCURATE: Accuracy = Accuracy { part: 2e-5, rounds: 200 };
/// For more than [`MANY`] models.
const QUICK: Accuracy = Accuracy { part: 3e-4, rounds: 100 };

/// Slots of one type that a model may still choose, beyond those it gets without doubt.
const CHOICE: u32 = 2;
const MANNERS: [Manner; 6] = [
    Manner { order: Order::Regret, fit: Fit::Tight },
    Manner { order: Order::Regret, fit: Fit::Cheap },
    Manner { order: Order::Size, fit: Fit::Tight },
    Manner { order: Order::Size, fit: Fit::Cheap },
    Manner { order: Order::Objective, fit: Fit::Tight },
    Manner { order: Order::Objective, fit: Fit::Cheap },
];

/// A plan before it is bound to GPUs.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// How many GPUs have each shape.
    pub(super) counts: Vec<u32>,
    pub(super) filling: Filling,
}

/// A number of GPUs of each shape, and how full their slots would be.
#[derive(Clone, Debug)]
struct Candidate {
    counts: Vec<u32>,
    /// Above 1, they cannot do.
    load: f64,
    prices: Vec<f64>,
    /// Model, slot and how many: what the relaxed program gives without doubt.
    sure: Vec<(usize, usize, u32)>,
}

/// The whole number of GPUs that a bound proves to be needed.
pub(super) fn at_least(bound: f64) -> u32 {
    (bound - 1e-6).ceil().max(1.0) as u32
}

/// One way to use slots, the prices that go with it, and the fewest GPUs it can need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'a> {
    pub(super) terms: &'a Terms<'a>,
    pub(super) relaxed: &'a Relaxed,
    pub(super) bound: f64,
}

/// Fills the fewest GPUs it can; of ways that need as many, the first.
pub(super) fn search(ways: &[Way<'_>], work: u64) -> Option<Found> {
    let limits = ways.first()?.terms.hardware.limits();
    let total: u32 = limits.iter().sum();
    let mut gpus = ways.iter().map(|way| at_least(way.bound)).min()?;
    let mut budget = work;
    let mut step = 1 + gpus / 300;
    while gpus <= total {
        for way in ways.iter().filter(|way| at_least(way.bound) <= gpus) {
            // The smallest numbers of GPUs are worth most.
            let share = budget / 3;
            let mut search = Search { way, limits: &limits, work: share };
            let found = search.with(gpus);
            budget -= share - search.work;
            if let Some((counts, filling)) = found {
                return Some(Found { counts, filling });
            }
        }
        if budget < work / 8 {
            step *= 2;
        }
        gpus += step;
    }
    None
}

/// The prices and the bound for the whole fleet.
pub(super) fn prices(demand: &Demand<'_>, hardware: &Hardware) -> Option<Relaxed> {
    let supplies: Vec<Supply<'_>> = hardware
        .shapes
        .iter()
        .map(|shape| Supply { counts: &shape.counts, pool: Some(shape.pool) })
        .collect();
    let accuracy = if demand.models.len() > MANY { QUICK } else { ACCURATE };
    relax(demand, &supplies, &hardware.limits(), accuracy)
}

struct Search<'a> {
    way: &'a Way<'a>,
    limits: &'a [u32],
    work: u64,
}

impl Search<'_> {
    fn with(&mut self, gpus: u32) -> Option<(Vec<u32>, Filling)> {
        let mut centre = self.candidate(self.rounded(gpus)?)?;
        if centre.load <= self.most_load()
            && let Some(filling) = self.fill(&centre)
        {
            return Some((centre.counts, filling));
        }
        let mut seen = vec![centre.counts.clone()];
        let most = self.most_load();
        for _ in 0..4 {
            let mut around = self.around(&centre.counts, &seen);
            around.sort_by(|a, b| a.load.total_cmp(&b.load));
            seen.extend(around.iter().map(|candidate| candidate.counts.clone()));
            for candidate in around.iter().filter(|candidate| candidate.load <= most).take(16) {
                if let Some(filling) = self.fill(candidate) {
                    return Some((candidate.counts.clone(), filling));
                }
            }
            centre = around.into_iter().next()?;
        }
        None
    }

    /// Loads above this are not tried: for whole slots they are impossible, for turns unlikely.
    fn most_load(&self) -> f64 {
        if self.way.terms.demand.shared() { 1.02 } else { 1.0 + 1e-9 }
    }

    fn fill(&mut self, candidate: &Candidate) -> Option<Filling> {
        let mut free = self.way.terms.hardware.supply(&candidate.counts);
        let demand = &self.way.terms.demand;
        let mut wants = demand.wants.to_vec();
        for (model, slot, count) in &candidate.sure {
            free[*slot] -= count;
            wants[*model] = wants[*model].without(*count, demand.table.capacity(*model, *slot));
        }
        let demand = Demand { wants: &wants, ..*demand };
        let terms = Terms { demand, prices: &candidate.prices, ..*self.way.terms };
        let mut filling = None;
        for manner in MANNERS {
            filling = fill(&terms, &free, manner, &mut self.work);
            if filling.is_some() || self.work == 0 {
                break;
            }
        }
        let mut filling = filling?;
        filling.whole.extend(&candidate.sure);
        Some(filling)
    }

    /// Whole numbers of shapes near those of the relaxed program.
    fn rounded(&self, gpus: u32) -> Option<Vec<u32>> {
        let hardware = self.way.terms.hardware;
        let used: f64 = self.way.relaxed.used.iter().sum();
        let stretch = f64::from(gpus) / used.max(1e-6);
        let shrink = stretch.min(1.0);
        let mut counts: Vec<u32> =
            self.way.relaxed.used.iter().map(|used| (used * shrink + 1e-6) as u32).collect();
        while counts.iter().sum::<u32>() < gpus {
            let supply = hardware.supply(&counts);
            let gain = |counts: &[u32]| -> (f64, f64) {
                let mut gain = (0.0, 0.0);
                for (slot, count) in counts.iter().enumerate() {
                    let missing = self.way.relaxed.wanted[slot] * stretch - f64::from(supply[slot]);
                    let price = self.way.relaxed.prices[slot];
                    gain.0 += price * f64::from(*count).min(missing.max(0.0));
                    gain.1 += price * f64::from(*count);
                }
                gain
            };
            let mut best: Option<((f64, f64), usize)> = None;
            for (index, shape) in hardware.shapes.iter().enumerate() {
                let gain = gain(&shape.counts);
                let better = best.is_none_or(|(most, _)| {
                    gain.0 > most.0 + 1e-9 || (gain.0 > most.0 - 1e-9 && gain.1 > most.1 + 1e-9)
                });
                if better && self.used(&counts, shape.pool) < self.limits[shape.pool] {
                    best = Some((gain, index));
                }
            }
            counts[best?.1] += 1;
        }
        (counts.iter().sum::<u32>() == gpus).then_some(counts)
    }

    fn used(&self, counts: &[u32], pool: usize) -> u32 {
        let shapes = self.way.terms.hardware.shapes.iter().zip(counts);
        shapes.filter(|(shape, _)| shape.pool == pool).map(|(_, count)| count).sum()
    }

    /// Those that differ from `centre` in the shape of one GPU.
    fn around(&mut self, centre: &[u32], seen: &[Vec<u32>]) -> Vec<Candidate> {
        let mut found = Vec::new();
        for from in (0..centre.len()).filter(|from| centre[*from] > 0) {
            for to in (0..centre.len()).filter(|to| *to != from) {
                let mut counts = centre.to_vec();
                counts[from] -= 1;
                counts[to] += 1;
                let pool = self.way.terms.hardware.shapes[to].pool;
                if self.work == 0
                    || seen.contains(&counts)
                    || self.used(&counts, pool) > self.limits[pool]
                {
                    continue;
                }
                found.extend(self.candidate(counts));
            }
        }
        found
    }

    /// How full these shapes would be at best, and what their slots are then worth.
    fn candidate(&mut self, counts: Vec<u32>) -> Option<Candidate> {
        let supply = self.way.terms.hardware.supply(&counts);
        let supplies = [Supply { counts: &supply, pool: None }];
        let relaxed = relax(&self.way.terms.demand, &supplies, &[], ROUGH)?;
        self.work = self.work.saturating_sub(self.way.terms.demand.work(relaxed.rounds));
        let sure = sure(&relaxed, &supply);
        Some(Candidate { counts, load: relaxed.bound, prices: relaxed.prices, sure })
    }
}

/// The slots that every model gets by the relaxed program, less a few to choose from.
fn sure(relaxed: &Relaxed, supply: &[u32]) -> Vec<(usize, usize, u32)> {
    let mut left = supply.to_vec();
    let mut sure = Vec::new();
    for (model, slot, count) in &relaxed.picks {
        let count = (*count as u32).saturating_sub(CHOICE).min(left[*slot]);
        if count > 0 {
            left[*slot] -= count;
            sure.push((*model, *slot, count));
        }
    }
    sure
}

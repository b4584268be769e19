//! How many GPUs of which shapes, and who is in their slots.
//!
//! For a given number of GPUs, shapes are rounded from the relaxed program and from its neighbours,
//! the most promising first, until one can be filled. The search stops at a budget of work, never at
//! a time, so that it is the same everywhere.

use super::{
    MANY,
    fill::{Filling, Manner, Order, Terms, fill},
    hardware::Hardware,
    master::{Relaxed, Supplies, Supply},
    pack::Fit,
    relax::{Accuracy, Demand, Hint, ROUGH, relax},
    rounding::rounded,
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

impl Way<'_> {
    /// Whether the relaxed program has as many GPUs of each kind as it uses.
    fn is_within_fleet(&self) -> bool {
        let hardware = self.terms.hardware;
        let mut used = vec![0.0; hardware.pools.len()];
        for (shape, count) in hardware.shapes.iter().zip(&self.relaxed.used) {
            used[shape.pool] += count;
        }
        used.iter().zip(hardware.limits()).all(|(used, limit)| *used <= f64::from(limit) + 1e-6)
    }
}

impl Found {
    fn gpus(&self) -> u32 {
        self.counts.iter().sum()
    }
}

/// Fills the fewest GPUs it can; of ways that need as many, the first.
///
/// What rounding finds is the most that are needed. From there on it looks half way between what is
/// known to do and what was tried in vain.
pub(super) fn search(ways: &[Way<'_>], work: u64) -> Option<Found> {
    let within = |way: &&Way<'_>| way.is_within_fleet();
    let ways: &[Way<'_>] = &ways.iter().filter(within).copied().collect::<Vec<_>>();
    let rounded = ways.iter().filter_map(rounded);
    let mut best = rounded.reduce(|best, next| if next.gpus() < best.gpus() { next } else { best });
    let limits = ways.first()?.terms.hardware.limits();
    let total: u32 = limits.iter().sum();
    let mut in_vain = ways.iter().map(|way| at_least(way.bound)).min()?.min(total) - 1;
    let many = ways.iter().any(|way| way.terms.demand.models.len() > MANY);
    let mut budget = work;
    let enough_tried = if many { work - work / 4 } else { work / 16 };
    loop {
        let enough = best.as_ref().map_or(total + 1, Found::gpus);
        let close = if many && best.is_some() { 1 + enough / 100 } else { 1 };
        if enough <= in_vain + close || (budget < enough_tried && best.is_some()) {
            return best;
        }
        let gpus = u32::midpoint(in_vain, enough);
        let mut found = None;
        for way in ways.iter().filter(|way| at_least(way.bound) <= gpus) {
            let mut search = Search { way, limits: &limits, work: budget / 3 };
            found = if many { search.simply(gpus) } else { search.with(gpus) };
            budget -= budget / 3 - search.work;
            if found.is_some() {
                break;
            }
        }
        match found {
            Some(found) => best = Some(found),
            None => in_vain = gpus,
        }
    }
}

/// The prices and the bound, with so many GPUs of each pool.
pub(super) fn prices(
    demand: &Demand<'_>,
    hardware: &Hardware,
    limits: &[u32],
    hint: Hint<'_>,
) -> Option<Relaxed> {
    let supplies: Vec<Supply<'_>> = hardware
        .shapes
        .iter()
        .map(|shape| Supply { counts: &shape.counts, pool: Some(shape.pool) })
        .collect();
    let accuracy = if demand.models.len() > MANY { QUICK } else { ACCURATE };
    let supplies = Supplies { each: &supplies, limits };
    relax(demand, &supplies, hint, accuracy)
}

struct Search<'a> {
    way: &'a Way<'a>,
    limits: &'a [u32],
    work: u64,
}

impl Search<'_> {
    /// Fills the one candidate nearest to the relaxed program.
    fn simply(&mut self, gpus: u32) -> Option<Found> {
        let centre = self.candidate(self.rounded(gpus)?)?;
        let filling = self.fill(&centre)?;
        Some(Found { counts: centre.counts, filling })
    }

    /// Fills one of the candidates near the relaxed program.
    fn with(&mut self, gpus: u32) -> Option<Found> {
        let mut centre = self.candidate(self.rounded(gpus)?)?;
        if centre.load <= self.most_load()
            && let Some(filling) = self.fill(&centre)
        {
            return Some(Found { counts: centre.counts, filling });
        }
        let mut seen = vec![centre.counts.clone()];
        let most = self.most_load();
        for _ in 0..4 {
            let mut around = self.around(&centre.counts, &seen);
            around.sort_by(|a, b| a.load.total_cmp(&b.load));
            seen.extend(around.iter().map(|candidate| candidate.counts.clone()));
            for candidate in around.iter().filter(|candidate| candidate.load <= most).take(16) {
                if let Some(filling) = self.fill(candidate) {
                    return Some(Found { counts: candidate.counts.clone(), filling });
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
        let many = demand.models.len() > MANY;
        let manners = if many { &MANNERS[..2] } else { &MANNERS };
        for manner in manners {
            filling = fill(&terms, &free, *manner, &mut self.work);
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
                if better && hardware.used(&counts, shape.pool) < self.limits[shape.pool] {
                    best = Some((gain, index));
                }
            }
            counts[best?.1] += 1;
        }
        (counts.iter().sum::<u32>() == gpus).then_some(counts)
    }

    /// Those that differ from `centre` in the shape of one GPU.
    fn around(&mut self, centre: &[u32], seen: &[Vec<u32>]) -> Vec<Candidate> {
        let mut found = Vec::new();
        for from in (0..centre.len()).filter(|from| centre[*from] > 0) {
            for to in (0..centre.len()).filter(|to| *to != from) {
                let mut counts = centre.to_vec();
                counts[from] -= 1;
                counts[to] += 1;
                let hardware = self.way.terms.hardware;
                let pool = hardware.shapes[to].pool;
                if self.work == 0
                    || seen.contains(&counts)
                    || hardware.used(&counts, pool) > self.limits[pool]
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
        let supplies = Supplies { each: &supplies, limits: &[] };
        let Relaxed { prices, purchases, .. } = self.way.relaxed;
        // From the whole fleet's purchases it is quick, from nothing the prices are better.
        let many = self.way.terms.demand.models.len() > MANY;
        let hint = if many { Hint { prices, purchases } } else { Hint::default() };
        let relaxed = relax(&self.way.terms.demand, &supplies, hint, ROUGH)?;
        self.work = self.work.saturating_sub(self.way.terms.demand.work(relaxed.rounds));
        let sure = sure(&relaxed, &supply);
        Some(Candidate { counts, load: relaxed.bound, prices: relaxed.prices, sure })
    }
}

/// The slots that every model gets by the relaxed program, less a few to choose from.
fn sure(relaxed: &Relaxed, supply: &[u32]) -> Vec<(usize, usize, u32)> {
    let mut picks: Vec<(usize, usize, f64)> = Vec::new();
    for (part, purchase) in &relaxed.purchases {
        for (model, cover) in &purchase.covers {
            picks.extend(cover.counts().map(|(slot, count)| (*model, slot, part * count)));
        }
    }
    picks.sort_by_key(|(model, slot, _)| (*model, *slot));
    let mut left = supply.to_vec();
    let mut sure = Vec::new();
    for same in picks.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let [(model, slot, _), ..] = *same else { continue };
        let count: f64 = same.iter().map(|(_, _, count)| count).sum();
        let count = (count as u32).saturating_sub(CHOICE).min(left[slot]);
        if count > 0 {
            left[slot] -= count;
            sure.push((model, slot, count));
        }
    }
    sure
}

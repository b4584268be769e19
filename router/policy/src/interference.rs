//! How much slower a replica is beside others on its GPU.
//!
//! MIG divides compute, memory and its bandwidth. It does not divide the board's power, the way to
//! the host, or the last level of address translation. So a replica beside others takes
//!
//! `1 + power * (what all draw over the limit) + pcie * (what others move) + tlb * (how many there are)`
//!
//! times as long as alone, and waits for the rest where all together move more than there is way for.
//! What each draws is declared or measured, and never quite right; so the
//! prediction is corrected by what is seen, for each model, profile and set of neighbours by itself.
//! A set not seen yet is corrected as those of the same model and profile were. What is not seen
//! again is slowly forgotten, because clocks, drivers and models change.

mod memory;

use std::{collections::BTreeMap, time::Duration};

use self::memory::{Correction, Errors};
use crate::moment::Moment;

/// Neighbours that a GPU of seven slices has at most.
const NEIGHBOURS: f64 = 6.0;
/// Sets of neighbours that are remembered; beyond that the one not seen for longest is forgotten.
const REMEMBERED: usize = 4_096;
/// A correction nearer to 1 is not worth keeping.
const SLIGHT: f64 = 0.01;

/// What a model asks, when it is busy, of what slices share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Draw {
    /// Power, as a part of its slice's share of the board's limit; may exceed 1.
    pub power: f64,
    /// Memory bandwidth, as a part of its slice's: what it asks of address translation.
    pub bandwidth: f64,
    /// The part of the way to the host that it keeps busy.
    pub pcie: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// Slowdown by power over the limit, as a part of it.
    pub power: f64,
    /// Slowdown by all of the way to the host.
    pub pcie: f64,
    /// Slowdown by as many busy neighbours as there can be.
    pub tlb: f64,
}

impl Default for Gains {
    /// Half of what is drawn over the limit, since power falls faster than the clock; and so that
    /// six busy neighbours cost about 2 %, as in NVIDIA's MLPerf runs under MIG.
    fn default() -> Self {
        Self { power: 0.5, pcie: 0.1, tlb: 0.015 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Runner {
    pub model: u32,
    pub compute: f64,
    /// The part of the time it is at work.
    pub busy: f64,
    pub load: Draw,
}

/// A replica and its neighbours on the same GPU.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    pub own: Runner,
    /// Those on other slices, loaned training among them.
    pub others: &'a [Runner],
}

impl Scene<'_> {
    /// The slowdown by what is declared alone. At least 1.
    pub fn predicted(&self, gains: &Gains) -> f64 {
        let draws = |one: &Runner| one.load.power * one.compute * one.busy;
        // It is at work when it is slowed, and what it draws by itself was felt when alone.
        let own = self.own.load.power * self.own.compute;
        let all = own + self.others.iter().map(draws).sum::<f64>();
        let over = (all - 1.0).max(0.0) - (own - 1.0).max(0.0);
        let moved: f64 = self.others.iter().map(|one| one.load.pcie * one.busy).sum();
        let own_pcie = self.own.load.pcie;
        let waiting = if own_pcie > 0.0 { (moved + own_pcie - 1.0).max(0.0) } else { 0.0 };
        let walks: f64 = self.others.iter().map(|one| one.load.bandwidth * one.busy).sum();
        let walks = (walks / NEIGHBOURS).min(1.0);
        1.0 + gains.power * over + gains.pcie * moved.min(1.0) + waiting + gains.tlb * walks
    }

    fn place(&self) -> Place {
        Place { model: self.own.model, compute: thousandths(self.own.compute) }
    }

    fn key(&self) -> Key {
        let each = self.others.iter().filter(|one| one.busy > 0.0);
        let mut others: Vec<Place> =
            each.map(|one| Place { model: one.model, compute: thousandths(one.compute) }).collect();
        others.sort_unstable();
        Key { place: self.place(), others }
    }
}

/// Learns how wrong the prediction is, and where.
#[derive(Clone, Debug)]
pub struct Interference {
    gains: Gains,
    places: BTreeMap<Place, Correction>,
    sets: BTreeMap<Key, Correction>,
    errors: Errors,
}

impl Interference {
    pub fn new(gains: Gains) -> Self {
        Self { gains, places: BTreeMap::new(), sets: BTreeMap::new(), errors: Errors::default() }
    }

    /// How many times as long as alone the replica takes. At least 1.
    pub fn slowdown(&self, scene: &Scene<'_>, now: Moment) -> f64 {
        let correction = self.sets.get(&scene.key()).or_else(|| self.places.get(&scene.place()));
        let factor = correction.map_or(1.0, |correction| correction.at(now));
        (scene.predicted(&self.gains) * factor).max(1.0)
    }

    /// Learns from a batch that took `took`, and alone would have taken `alone`.
    ///
    /// Gives the error of the prediction, as a part of what was seen.
    pub fn observe(&mut self, scene: &Scene<'_>, times: Times, now: Moment) -> f64 {
        let observed = times.took.as_secs_f64() / times.alone.as_secs_f64().max(1e-9);
        let error = (self.slowdown(scene, now) / observed.max(1e-9) - 1.0).abs();
        self.errors.add(error);
        let ratio = observed / scene.predicted(&self.gains);
        self.places.entry(scene.place()).or_default().learn(ratio, now);
        let key = scene.key();
        if !self.sets.contains_key(&key) && self.sets.len() >= REMEMBERED {
            let oldest = self.sets.iter().min_by_key(|(_, one)| one.seen_at());
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.sets.remove(&oldest);
            }
        }
        self.sets.entry(key).or_default().learn(ratio, now);
        error
    }

    /// All that was learned and makes a difference.
    pub fn corrections(&self, now: Moment) -> Vec<Corrected> {
        let pair = |place: &Place| (place.model, place.compute);
        let corrected = |place: &Place, others, one: &Correction| {
            let (model, compute) = pair(place);
            Corrected { model, compute, others, factor: one.at(now), seen: one.seen() }
        };
        let places = self.places.iter().map(|(place, one)| corrected(place, None, one));
        let sets = self.sets.iter().map(|(key, one)| {
            corrected(&key.place, Some(key.others.iter().map(pair).collect()), one)
        });
        places.chain(sets).filter(|one| one.factor.ln().abs() >= SLIGHT).collect()
    }

    /// Takes up what was learned, and was not seen again for `away`.
    pub fn recall(&mut self, learned: &[Corrected], away: Duration, now: Moment) {
        for Corrected { model, compute, others, factor, seen } in learned {
            if !factor.is_finite() {
                continue;
            }
            let place = Place { model: *model, compute: *compute };
            let correction = Correction::recalled(*factor, *seen, away, now);
            if let Some(others) = others {
                let beside =
                    |(model, compute): &(u32, u32)| Place { model: *model, compute: *compute };
                let mut others: Vec<Place> = others.iter().map(beside).collect();
                others.sort_unstable();
                if self.sets.len() < REMEMBERED {
                    self.sets.insert(Key { place, others }, correction);
                }
            } else {
                self.places.insert(place, correction);
            }
        }
    }

    /// The median error of the last predictions, as a part of what was seen; none before the first.
    pub fn median_error(&self) -> Option<f64> {
        self.errors.median()
    }
}

/// What was learned about a model on a size of slice, as a value that can be kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Corrected {
    pub model: u32,
    /// Its slice's part of the GPU's compute, in thousandths.
    pub compute: u32,
    /// The models beside it and the parts they had; absent, whatever was beside it.
    pub others: Option<Vec<(u32, u32)>>,
    pub factor: f64,
    pub seen: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub took: Duration,
    pub alone: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    model: u32,
    compute: u32,
}

/// A model on a size of slice beside certain others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    place: Place,
    others: Vec<Place>,
}

fn thousandths(part: f64) -> u32 {
    (part * 1_000.0).round() as u32
}

#[cfg(test)]
mod tests;

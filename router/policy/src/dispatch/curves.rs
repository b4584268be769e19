//! How long a replica takes, by batch key: requests of another shape take another time.
//!
//! While keys have no shapes, or there is one, there is one curve. A further key starts as the
//! nearest known curve by its elements, and is put right by the first batch of its own; so is the
//! relation of time to elements. What nobody measured is not known, and nothing is concluded from it.

use std::time::Duration;

use crate::latency::{Change, Latency};

/// The most curves of a replica; the least lately used is forgotten.
const MOST: usize = 16;
/// What remains of the weight of earlier rows with each batch.
const KEEPS: f64 = 0.98;
const EXPONENTS: std::ops::RangeInclusive<f64> = 0.5..=2.0;

#[derive(Clone, Debug)]
pub(crate) struct Curves {
    first: Latency,
    first_of: Option<Shape>,
    first_weight: f64,
    others: Vec<Other>,
    /// Of the batch that came back last.
    last: Option<usize>,
    /// Time grows with the elements to this power.
    exponent: f64,
    uses: u64,
}

/// The elements of a row of the requests of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) key: usize,
    pub(crate) elements: f64,
}

#[derive(Clone, Debug)]
struct Other {
    shape: Shape,
    latency: Latency,
    /// How many times longer it was guessed to take than another, by how many times its elements.
    guessed: Option<Guess>,
    used: u64,
    weight: f64,
}

#[derive(Clone, Copy, Debug)]
struct Guess {
    elements: f64,
    times: f64,
}

impl Curves {
    pub(crate) fn new(first: Latency) -> Self {
        Self {
            first,
            first_of: None,
            first_weight: 1.0,
            others: Vec::new(),
            last: None,
            exponent: 1.0,
            uses: 0,
        }
    }

    pub(crate) fn is_single(&self) -> bool {
        self.others.is_empty()
    }

    /// The curve of `key`; the first while it has none of its own.
    pub(crate) fn of(&self, key: usize) -> &Latency {
        if self.others.is_empty() {
            return &self.first;
        }
        let own = self.others.iter().find(|other| other.shape.key == key);
        own.map_or(&self.first, |other| &other.latency)
    }

    /// The curve that is of `key` or of all keys; none while it would be another's.
    pub(crate) fn own(&self, key: usize) -> Option<&Latency> {
        match self.first_of {
            None => Some(&self.first),
            Some(first) if first.key == key => Some(&self.first),
            Some(_) => {
                let own = self.others.iter().find(|other| other.shape.key == key);
                own.map(|other| &other.latency)
            }
        }
    }

    /// The curve of the batch that came back last.
    pub(crate) fn last(&self) -> &Latency {
        self.last.map_or(&self.first, |key| self.of(key))
    }

    /// Every curve, with its part of the rows of late; the parts sum to 1.
    pub(crate) fn mix(&self) -> impl Iterator<Item = (&Latency, f64)> {
        let others = self.others.iter().map(|other| (&other.latency, other.weight));
        let whole = self.first_weight + self.others.iter().map(|other| other.weight).sum::<f64>();
        std::iter::once((&self.first, self.first_weight))
            .chain(others)
            .map(move |(latency, weight)| (latency, weight / whole))
    }

    pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = &mut Latency> {
        let others = self.others.iter_mut().map(|other| &mut other.latency);
        std::iter::once(&mut self.first).chain(others)
    }

    /// Makes sure that there is a curve for `shape`, of which a request came.
    pub(crate) fn meet(&mut self, shape: Shape) {
        let first = *self.first_of.get_or_insert(shape);
        if first.key == shape.key {
            return;
        }
        self.uses += 1;
        if let Some(known) = self.others.iter_mut().find(|other| other.shape.key == shape.key) {
            known.used = self.uses;
            return;
        }
        let (latency, guessed) = self.guess(shape);
        self.keep(Other { shape, latency, guessed, used: self.uses, weight: 0.0 });
    }

    /// Takes what was measured of `shape`.
    pub(crate) fn teach(&mut self, shape: Shape, measured: &[(u32, Duration)]) {
        let latency = Latency::new(measured, self.first.max());
        if self.first_of.get_or_insert(shape).key == shape.key {
            self.first = latency;
            return;
        }
        self.others.retain(|other| other.shape.key != shape.key);
        self.uses += 1;
        self.keep(Other { shape, latency, guessed: None, used: self.uses, weight: 0.0 });
    }

    /// Forgets whose curves they are: keys will mean other shapes. The first is kept for whoever is
    /// first.
    pub(crate) fn forget_keys(&mut self) {
        self.first_of = None;
        self.others.clear();
        self.last = None;
    }

    pub(crate) fn observe(&mut self, key: usize, rows: u32, took: Duration) -> Change {
        if self.others.is_empty() {
            return self.first.observe(rows, took);
        }
        self.last = Some(key);
        self.first_weight *= KEEPS;
        self.others.iter_mut().for_each(|other| other.weight *= KEEPS);
        let Some(own) = self.others.iter_mut().find(|other| other.shape.key == key) else {
            self.first_weight += f64::from(rows);
            return self.first.observe(rows, took);
        };
        own.weight += f64::from(rows);
        let Some(guess) = own.guessed.take() else { return own.latency.observe(rows, took) };
        let ratio = took.as_secs_f64() / own.latency.mean(rows).as_secs_f64().max(1e-6);
        if guess.elements != 1.0 {
            let found = (guess.times * ratio).ln() / guess.elements.ln();
            let found = found.clamp(*EXPONENTS.start(), *EXPONENTS.end());
            self.exponent = f64::midpoint(self.exponent, found);
        }
        own.latency = own.latency.scaled(ratio);
        Change::Drifted(ratio)
    }

    fn guess(&self, shape: Shape) -> (Latency, Option<Guess>) {
        let first = self.first_of.map(|of| (of, &self.first));
        let others = self.others.iter().map(|other| (other.shape, &other.latency));
        let known = first.into_iter().chain(others).filter(|(_, latency)| latency.is_known());
        let apart = |other: &Shape| (other.elements / shape.elements).ln().abs();
        match known.min_by(|one, other| apart(&one.0).total_cmp(&apart(&other.0))) {
            None => (Latency::unknown(self.first.max()), None),
            Some((near, latency)) => {
                let elements = shape.elements / near.elements;
                let times = elements.powf(self.exponent);
                (latency.guess(times), Some(Guess { elements, times }))
            }
        }
    }

    fn keep(&mut self, other: Other) {
        if self.others.len() + 1 >= MOST {
            let least = self.others.iter().enumerate().min_by_key(|(_, other)| other.used);
            if let Some((index, _)) = least {
                self.others.swap_remove(index);
            }
        }
        self.others.push(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: f64) -> Duration {
        Duration::from_secs_f64(value / 1e3)
    }

    fn shape(key: usize, elements: f64) -> Shape {
        Shape { key, elements }
    }

    fn close(found: Duration, wanted_ms: f64) -> bool {
        (found.as_secs_f64() * 1e3 / wanted_ms - 1.0).abs() < 0.01
    }

    #[test]
    fn further_shape_starts_scaled_until_its_first_batch() {
        let mut curves = Curves::new(Latency::new(&[(1, ms(80.0))], 8));
        curves.meet(shape(0, 320.0 * 320.0));
        curves.meet(shape(1, 960.0 * 960.0));
        assert!(close(curves.of(1).mean(1), 720.0), "{:?}", curves.of(1).mean(1));
        curves.observe(1, 1, ms(600.0));
        assert!(close(curves.of(1).mean(1), 600.0), "{:?}", curves.of(1).mean(1));
        assert!(close(curves.of(0).mean(1), 80.0), "{:?}", curves.of(0).mean(1));
        assert_eq!(curves.of(1).slowdown(1), 1.0, "a shape is no interference");
        assert!(curves.exponent < 1.0, "{}", curves.exponent);
    }

    #[test]
    fn nothing_is_known_of_any_shape_before_a_first_batch() {
        let mut curves = Curves::new(Latency::unknown(8));
        curves.meet(shape(0, 100.0));
        curves.meet(shape(1, 400.0));
        assert!(!curves.of(0).is_known() && !curves.of(1).is_known());
        curves.observe(1, 1, ms(40.0));
        assert!(close(curves.of(1).mean(1), 40.0) && !curves.of(0).is_known());
        curves.meet(shape(2, 800.0));
        assert!(close(curves.of(2).mean(1), 80.0), "{:?}", curves.of(2).mean(1));
    }

    #[test]
    fn least_used_of_too_many_shapes_is_forgotten() {
        let mut curves = Curves::new(Latency::new(&[(1, ms(10.0))], 8));
        for key in 0..MOST + 4 {
            curves.meet(shape(key, 100.0));
            curves.meet(shape(1, 100.0));
        }
        assert_eq!(curves.others.len(), MOST - 1);
        let known = |key| curves.others.iter().any(|other| other.shape.key == key);
        assert!(known(1) && known(MOST + 3) && !known(2));
    }

    #[test]
    fn the_same_key_twice_as_slow_is_interference() {
        let mut curves = Curves::new(Latency::new(&[(1, ms(10.0))], 8));
        curves.meet(shape(0, 100.0));
        curves.meet(shape(1, 900.0));
        for _ in 0..8 {
            curves.observe(1, 1, ms(90.0));
        }
        assert!(curves.last().slowdown(1) < 1.01, "{}", curves.last().slowdown(1));
        for _ in 0..8 {
            curves.observe(1, 1, ms(180.0));
        }
        assert!(curves.last().slowdown(1) > 1.8, "{}", curves.last().slowdown(1));
    }
}

//! How long a replica takes for a batch of a given size, learned as it runs.
//!
//! The curve is held at a few sizes (those of the warm-up or of the measured profile, and those in
//! use) and is linear between them. Every finished batch pulls the two nearest points towards what
//! was seen, and the others a little, because most of what slows one size slows all; the noisier the
//! replica, the less. Three batches in a row that disagree the same way are drift: the whole curve is
//! scaled at once, so that a replica that became twice as slow is believed within three batches
//! rather than thirty.
//!
//! Reading is by table: a prediction or its inverse costs an index or a binary search.

mod curve;
mod ratios;

use std::time::Duration;

use self::{curve::Curve, ratios::Ratios};

const LOW: f64 = 0.1;
const HIGH: f64 = 0.8;
const RARE: f64 = 0.99;
const DRIFT_UP: f64 = 1.2;
const DRIFT_DOWN: f64 = 0.8;
const DRIFT_RUN: usize = 3;
const REBUILD_EVERY: u32 = 4;
const WORTH: f64 = 1.005;
/// The shortest a curve can say.
const NO_TIME: Duration = Duration::from_micros(1);
/// What a batch may spend outside of its replica before that says something about the replica.
const ON_THE_WAY_US: f64 = 500.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    Steady,
    /// The whole curve was scaled by this factor.
    Drifted(f64),
}

/// What stands behind a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basis {
    Measured,
    /// It follows from the latency of something else.
    Guessed,
    Nothing,
}

#[derive(Clone, Debug)]
pub struct Latency {
    basis: Basis,
    curve: Curve,
    ratios: Ratios,
    /// Batches in a row that disagree with the curve the same way: rows and time.
    run: Vec<(u32, f64)>,
    quick: f64,
    spread: f64,
    unread: u32,
    mean_us: Vec<f64>,
    efficient: Vec<u32>,
}

impl Latency {
    /// Starts from measured points, for batches of 1 to `max` rows.
    pub fn new(measured: &[(u32, Duration)], max: u32) -> Self {
        let mut latency = Self {
            basis: Basis::Measured,
            curve: Curve::new(measured),
            ratios: Ratios::default(),
            run: Vec::with_capacity(DRIFT_RUN),
            quick: 1.0,
            spread: 1.0,
            unread: 0,
            mean_us: Vec::new(),
            efficient: Vec::new(),
        };
        latency.rebound(max);
        latency
    }

    /// A replica of which nothing was measured: as if it took no time, so that nothing is concluded
    /// from it, until the first batch.
    pub fn unknown(max: u32) -> Self {
        Self { basis: Basis::Nothing, ..Self::new(&[(1, NO_TIME)], max) }
    }

    /// Whether what it says was measured.
    pub fn is_known(&self) -> bool {
        self.basis == Basis::Measured
    }

    /// A guess for something that takes `times` as long.
    pub(crate) fn guess(&self, times: f64) -> Self {
        Self { basis: Basis::Guessed, ..self.scaled(times) }
    }

    /// The same, `times` as long from the start.
    pub(crate) fn scaled(&self, times: f64) -> Self {
        let mut scaled = Self { basis: Basis::Measured, ..self.clone() };
        scaled.curve.restart(times);
        scaled.run.clear();
        scaled.ratios.clear();
        scaled.rebuild();
        scaled
    }

    pub fn max(&self) -> u32 {
        (self.mean_us.len() - 1) as u32
    }

    /// Speaks of batches up to `max` from now on.
    pub fn rebound(&mut self, max: u32) {
        assert!(max >= 1);
        let length = max as usize + 1;
        self.mean_us = vec![0.0; length];
        self.efficient = vec![0; length];
        self.rebuild();
    }

    pub fn mean(&self, size: u32) -> Duration {
        from_micros(self.mean_us[self.index(size)])
    }

    /// The time a batch of `size` rows seldom stays below; none while nothing of it was measured.
    pub fn low(&self, size: u32) -> Duration {
        if self.is_known() { self.stretched(size, self.quick) } else { Duration::ZERO }
    }

    /// The time a batch of `size` rows seldom exceeds.
    pub fn high(&self, size: u32) -> Duration {
        self.stretched(size, self.spread)
    }

    /// The time of a batch of `size` rows at `ratio` of the expected.
    pub fn stretched(&self, size: u32, ratio: f64) -> Duration {
        from_micros(self.mean_us[self.index(size)] * ratio)
    }

    /// The largest batch that seldom exceeds `budget`; 0 if not even one row fits.
    pub fn largest_within(&self, budget: Duration) -> u32 {
        self.largest_stretched(budget, self.spread)
    }

    /// The largest batch within `budget` at `ratio` of the expected; 0 if not even one row fits.
    pub fn largest_stretched(&self, budget: Duration, ratio: f64) -> u32 {
        let budget_us = budget.as_secs_f64() * 1e6 / ratio;
        self.mean_us[1..].partition_point(|mean| *mean <= budget_us) as u32
    }

    /// The chance that a batch of `size` rows is done within `budget`.
    pub fn chance(&self, size: u32, budget: Duration) -> f64 {
        let ratio = budget.as_secs_f64() * 1e6 / self.mean_us[self.index(size)];
        self.ratios.within(ratio)
    }

    /// The time that hardly any batch of `size` rows exceeds; without end while nothing is known.
    pub fn allows(&self, size: u32) -> Duration {
        if self.is_known() { self.stretched(size, self.rare()) } else { Duration::MAX }
    }

    pub fn noise(&self) -> f64 {
        self.curve.noise()
    }

    /// How much longer a batch of `size` rows may take that has taken `elapsed`, at the least its
    /// expected time.
    ///
    /// As long as it usually took those that were no quicker; if there were hardly any, as long
    /// again as it is late, so that a stuck replica soon looks as far away as it is.
    pub fn remaining(&self, size: u32, elapsed: Duration) -> Duration {
        let mean_us = self.mean_us[self.index(size)];
        let ratio = elapsed.as_secs_f64() * 1e6 / mean_us;
        match self.ratios.usual_above(ratio) {
            Some(usual) => from_micros((usual - ratio) * mean_us),
            None => elapsed.saturating_sub(self.mean(size)),
        }
    }

    /// Observed over expected time that hardly any batch exceeds.
    pub fn rare(&self) -> f64 {
        self.ratios.high(RARE)
    }

    /// The size of at most `limit` with the most rows per second.
    ///
    /// A larger size must earn its latency: among near equals the smallest wins.
    pub fn most_efficient(&self, limit: u32) -> u32 {
        self.efficient[self.index(limit)]
    }

    /// The most efficient size of at most `limit`, or a little more while that has not been tried.
    ///
    /// Between two measured sizes the curve is a guess, and a guess too high would never be put
    /// right: the size would not be used. So the next size up is tried a few times, each time it
    /// proves itself becoming the one to step from.
    pub fn worth_trying(&self, limit: u32) -> u32 {
        let best = self.most_efficient(limit);
        self.untried(best).unwrap_or(best).min(limit)
    }

    /// The next size up from `best`, if it or one just before it has not been seen often enough.
    fn untried(&self, best: u32) -> Option<u32> {
        let step = (best + 1 + best / 16).min(self.max());
        (step > best && !self.curve.knows(best + 1..=step)).then_some(step)
    }

    /// Rows per second in batches of `size`, back to back.
    pub fn rows_per_second(&self, size: u32) -> f64 {
        let index = self.index(size);
        index as f64 * 1e6 / self.mean_us[index]
    }

    /// Observed over expected time at the high quantile, at least 1.
    pub fn spread(&self) -> f64 {
        self.spread
    }

    /// How many times as long as at first a batch of `size` rows takes, at least 1.
    ///
    /// The way there and back is not counted: at first only the work was.
    pub fn slowdown(&self, size: u32) -> f64 {
        let first_us = self.curve.first(size);
        let more_us = self.curve.interpolate(size) - first_us - ON_THE_WAY_US;
        1.0 + (more_us / first_us).max(0.0)
    }

    /// Learns from a batch of `size` rows that took `took`.
    pub fn observe(&mut self, size: u32, took: Duration) -> Change {
        if self.basis == Basis::Nothing {
            *self = Self::new(&[(size, took)], self.max());
            return Change::Steady;
        }
        let took_us = (took.as_secs_f64() * 1e6).max(1.0);
        let ratio = took_us / self.curve.interpolate(size);
        let unusual = (2.0 * self.curve.noise()).exp();
        let odd =
            |ratio: f64| ratio > unusual.max(DRIFT_UP) || ratio < (1.0 / unusual).min(DRIFT_DOWN);
        let before_us = self.curve.note(size, took_us);
        self.ratios.add(ratio);
        if odd(ratio) {
            if let Some(factor) = self.drift(size, took_us) {
                return Change::Drifted(factor);
            }
        } else {
            self.run.clear();
        }
        // What is odd is chance, unless the last batch of this size took as long.
        if !odd(ratio) || before_us.is_some_and(|before_us| !odd(took_us / before_us)) {
            self.curve.pull(size, ratio);
        }
        self.unread += 1;
        if self.unread >= REBUILD_EVERY || self.ratios.is_young() {
            self.rebuild();
        }
        Change::Steady
    }

    /// Doubts what was learned, in favour of what was measured at first where that was faster.
    ///
    /// For a replica believed so slow that it is given nothing, and so could never show otherwise.
    pub fn doubt(&mut self) {
        self.curve.doubt();
        self.rebuild();
    }

    /// Scales the curve once enough batches in a row disagree with it the same way.
    fn drift(&mut self, size: u32, took_us: f64) -> Option<f64> {
        self.run.push((size, took_us));
        let mut ratios: Vec<f64> = self
            .run
            .iter()
            .map(|(size, took_us)| took_us / self.curve.interpolate(*size))
            .collect();
        ratios.sort_by(f64::total_cmp);
        if ratios[0] < 1.0 && ratios[ratios.len() - 1] > 1.0 {
            self.run.drain(..self.run.len() - 1);
            return None;
        }
        if ratios.len() < DRIFT_RUN {
            return None;
        }
        let factor = ratios[DRIFT_RUN / 2];
        self.curve.scale(factor);
        self.run.clear();
        self.ratios.clear();
        self.rebuild();
        Some(factor)
    }

    fn rebuild(&mut self) {
        self.unread = 0;
        self.ratios.sort();
        self.quick = self.ratios.low(LOW);
        self.spread = self.ratios.high(HIGH);
        self.smooth();
        let mut best = 1;
        for size in 1..self.mean_us.len() {
            if size as f64 * self.mean_us[best] > best as f64 * self.mean_us[size] * WORTH {
                best = size;
            }
            self.efficient[size] = best as u32;
        }
        // What is to be tried is given the benefit of the doubt, or nothing would choose it.
        if let Some(step) = self.untried(best as u32) {
            for size in best + 1..=step as usize {
                let as_good = self.mean_us[best] * size as f64 / best as f64;
                self.mean_us[size] = self.mean_us[size].min(as_good);
            }
        }
    }

    /// Fills the table so that no size is faster than a smaller one: midway between raising those
    /// that are and lowering those before them, as noise errs both ways.
    fn smooth(&mut self) {
        let last = self.mean_us.len() - 1;
        let mut ceiling = f64::INFINITY;
        for size in (1..=last).rev() {
            ceiling = ceiling.min(self.curve.interpolate(size as u32));
            self.mean_us[size] = ceiling;
        }
        let mut floor: f64 = 0.0;
        for size in 1..=last {
            floor = floor.max(self.curve.interpolate(size as u32));
            self.mean_us[size] = f64::midpoint(self.mean_us[size], floor);
        }
    }

    fn index(&self, size: u32) -> usize {
        (size.max(1) as usize).min(self.mean_us.len() - 1)
    }
}

fn from_micros(micros: f64) -> Duration {
    Duration::from_nanos((micros * 1e3) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: f64) -> Duration {
        Duration::from_secs_f64(value / 1e3)
    }

    /// 10 ms and 1 ms a row.
    fn slow() -> Latency {
        Latency::new(&[(1, ms(11.0)), (8, ms(18.0)), (32, ms(42.0))], 32)
    }

    fn close(found: Duration, wanted_ms: f64, by: f64) -> bool {
        (found.as_secs_f64() * 1e3 - wanted_ms).abs() <= wanted_ms * by
    }

    #[test]
    fn between_measured_sizes_it_is_linear() {
        assert!(close(slow().mean(4), 14.0, 0.001));
        assert!(close(slow().mean(20), 30.0, 0.001));
    }

    #[test]
    fn past_the_last_measured_size_it_grows_in_proportion() {
        let latency = Latency::new(&[(1, ms(2.0)), (4, ms(4.0))], 8);
        assert!(close(latency.mean(8), 8.0, 0.001));
    }

    #[test]
    fn the_inverse_is_the_largest_size_that_fits() {
        let latency = slow();
        for budget_ms in 5..60 {
            let size = latency.largest_within(ms(f64::from(budget_ms)));
            if size > 0 {
                assert!(latency.high(size) <= ms(f64::from(budget_ms)), "{budget_ms}: {size}");
            }
            if size < latency.max() {
                assert!(latency.high(size + 1) > ms(f64::from(budget_ms)), "{budget_ms}: {size}");
            }
        }
        assert_eq!(latency.largest_within(ms(5.0)), 0);
    }

    #[test]
    fn a_replica_twice_as_slow_is_believed_within_three_batches() {
        let mut latency = slow();
        for _ in 0..50 {
            latency.observe(16, ms(26.0));
        }
        assert_eq!(latency.observe(16, ms(52.0)), Change::Steady);
        assert_eq!(latency.observe(16, ms(52.0)), Change::Steady);
        assert!(matches!(latency.observe(16, ms(52.0)), Change::Drifted(_)));
        assert!(close(latency.mean(16), 52.0, 0.1), "{:?}", latency.mean(16));
        assert!(close(latency.mean(1), 22.0, 0.15), "{:?}", latency.mean(1));
    }

    #[test]
    fn doubt_leads_back_to_the_first_measurement_and_no_further() {
        let mut latency = slow();
        for _ in 0..20 {
            latency.observe(4, ms(60.0));
        }
        assert!(latency.mean(1) > ms(20.0), "{:?}", latency.mean(1));
        for _ in 0..100 {
            latency.doubt();
        }
        assert!(close(latency.mean(1), 11.0, 0.001), "{:?}", latency.mean(1));
        assert!(close(latency.mean(32), 42.0, 0.001), "{:?}", latency.mean(32));
    }

    #[test]
    fn one_slow_batch_is_not_drift() {
        let mut latency = slow();
        for _ in 0..50 {
            latency.observe(16, ms(26.0));
        }
        latency.observe(16, ms(80.0));
        latency.observe(16, ms(26.0));
        latency.observe(16, ms(26.0));
        assert!(close(latency.mean(16), 26.0, 0.2), "{:?}", latency.mean(16));
    }

    #[test]
    fn a_wrong_first_guess_is_unlearned() {
        let mut latency = Latency::new(&[(1, ms(11.0)), (32, ms(11.0))], 32);
        for round in 0..800 {
            let size = 1 + (round * 7) % 32;
            latency.observe(size, ms(10.0 + f64::from(size)));
        }
        assert!(close(latency.mean(1), 11.0, 0.15), "{:?}", latency.mean(1));
        assert!(close(latency.mean(32), 42.0, 0.15), "{:?}", latency.mean(32));
    }

    #[test]
    fn the_most_efficient_size_is_the_knee_not_the_end() {
        let knee = Latency::new(&[(1, ms(10.0)), (16, ms(12.0)), (64, ms(120.0))], 64);
        assert!((14..=18).contains(&knee.most_efficient(64)), "{}", knee.most_efficient(64));
        let proportional = Latency::new(&[(1, ms(1.0)), (64, ms(64.0))], 64);
        assert_eq!(proportional.most_efficient(64), 1);
        assert_eq!(slow().most_efficient(32), 32);
    }

    #[test]
    fn noise_widens_the_high_quantile_and_calm_narrows_it() {
        let mut latency = slow();
        for round in 0..256 {
            let jitter = if round % 2 == 0 { 1.1 } else { 0.9 };
            latency.observe(16, ms(26.0 * jitter));
        }
        assert!(latency.spread() > 1.05, "{}", latency.spread());
        assert!(latency.noise() > 0.05, "{}", latency.noise());
        for _ in 0..256 {
            latency.observe(16, ms(26.0));
        }
        assert!(latency.spread() < 1.02, "{}", latency.spread());
    }
}

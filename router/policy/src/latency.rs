//! How long a replica takes for a batch of a given size, learned as it runs.
//!
//! The curve is held at a few sizes (those of the warm-up or of the measured profile) and is linear
//! between them. Every finished batch pulls the two nearest points towards what was seen, and the
//! others a little, because most of what slows one size slows all. Three batches in a row that
//! disagree the same way are drift: the whole curve is scaled at once, so that a replica that became
//! twice as slow is believed within three batches rather than thirty.
//!
//! Reading is by table: a prediction or its inverse costs an index or a binary search.

use std::time::Duration;

const WINDOW: usize = 128;
const HIGH: f64 = 0.8;
const RARE: f64 = 0.99;
const FIRST_SPREAD: f64 = 1.05;
const LARGEST_SPREAD: f64 = 3.0;
const NEAR: f64 = 0.15;
const FAR: f64 = 0.02;
const FIRST_NOISE: f64 = 0.05;
const NOISE_GAIN: f64 = 0.06;
/// The deviation up to which a single batch is believed.
const CALM: f64 = 0.03;
const DRIFT_UP: f64 = 1.2;
const DRIFT_DOWN: f64 = 0.8;
const DRIFT_RUN: usize = 3;
const REBUILD_EVERY: u32 = 4;
const DOUBT: f64 = 0.9;
const WORTH: f64 = 1.005;
const KNOWN: u32 = 3;
const MOST_POINTS: usize = 64;

/// What one observation did to the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Within what was expected.
    Steady,
    /// The whole curve was scaled by this factor.
    Drifted(f64),
}

/// One replica's latency by batch size.
#[derive(Clone, Debug)]
pub struct Latency {
    points: Vec<Point>,
    /// Observed over expected time of the last batches, as they came and sorted.
    ratios: Vec<f64>,
    sorted: Vec<f64>,
    oldest: usize,
    /// Batches in a row that disagree with the curve the same way: rows and time.
    run: Vec<(u32, f64)>,
    spread: f64,
    /// The standard deviation of the logarithm of a batch's time.
    noise: f64,
    unread: u32,
    mean_us: Vec<f64>,
    efficient: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    size: u32,
    mean_us: f64,
    /// What it was at first.
    first_us: f64,
    seen: u32,
    last_us: Option<f64>,
}

impl Latency {
    /// Starts from measured points, for batches of 1 to `max` rows.
    pub fn new(measured: &[(u32, Duration)], max: u32) -> Self {
        assert!(!measured.is_empty(), "a latency curve needs at least one point");
        assert!(max >= 1);
        let mut points: Vec<Point> = measured
            .iter()
            .map(|(size, took)| {
                let first_us = (took.as_secs_f64() * 1e6).max(1.0);
                let size = (*size).max(1);
                Point { size, mean_us: first_us, first_us, seen: KNOWN, last_us: None }
            })
            .collect();
        points.sort_by_key(|point| point.size);
        points.dedup_by_key(|point| point.size);
        let mut latency = Self {
            points,
            ratios: Vec::with_capacity(WINDOW),
            sorted: Vec::with_capacity(WINDOW),
            oldest: 0,
            run: Vec::with_capacity(DRIFT_RUN),
            spread: FIRST_SPREAD,
            noise: FIRST_NOISE,
            unread: 0,
            mean_us: vec![0.0; max as usize + 1],
            efficient: vec![0; max as usize + 1],
        };
        latency.rebuild();
        latency
    }

    /// The largest batch this curve speaks of.
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

    /// The expected time of a batch of `size` rows.
    pub fn mean(&self, size: u32) -> Duration {
        from_micros(self.mean_us[self.index(size)])
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
        let seen = self.sorted.partition_point(|seen| *seen <= ratio);
        let first = f64::from(ratio >= FIRST_SPREAD);
        let trust = self.trust();
        trust * seen as f64 / self.sorted.len().max(1) as f64 + (1.0 - trust) * first
    }

    /// The standard deviation of a batch's time, as a part of it.
    pub fn noise(&self) -> f64 {
        self.noise
    }

    /// Observed over expected time that hardly any batch exceeds.
    pub fn rare(&self) -> f64 {
        self.quantile(RARE)
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
        let step = (best + 1 + best / 16).min(limit).min(self.max());
        let (low, high, _) = self.bracket(step);
        let known = [low, high].iter().any(|index| {
            let point = self.points[*index];
            point.size >= step.saturating_sub(best / 16)
                && point.size > best
                && point.seen >= KNOWN
                && point.size <= step
        });
        if step > best && !known { step } else { best }
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

    /// Learns from a batch of `size` rows that took `took`.
    pub fn observe(&mut self, size: u32, took: Duration) -> Change {
        let took_us = (took.as_secs_f64() * 1e6).max(1.0);
        let ratio = took_us / self.interpolate(size);
        let unusual = (2.0 * self.noise).exp();
        let odd =
            |ratio: f64| ratio > unusual.max(DRIFT_UP) || ratio < (1.0 / unusual).min(DRIFT_DOWN);
        let before_us = self.note(size, took_us);
        self.remember(ratio);
        if odd(ratio) {
            if let Some(factor) = self.drift(size, took_us) {
                return Change::Drifted(factor);
            }
        } else {
            self.run.clear();
        }
        // What is odd is chance, unless the last batch of this size took as long.
        if !odd(ratio) || before_us.is_some_and(|before_us| !odd(took_us / before_us)) {
            self.pull(size, ratio);
        }
        self.unread += 1;
        if self.unread >= REBUILD_EVERY || self.ratios.len() < WINDOW / 4 {
            self.rebuild();
        }
        Change::Steady
    }

    /// Doubts what was learned, in favour of what was measured at first where that was faster.
    ///
    /// For a replica believed so slow that it is given nothing, and so could never show otherwise.
    pub fn doubt(&mut self) {
        for point in &mut self.points {
            point.mean_us = point.mean_us.min((point.mean_us * DOUBT).max(point.first_us));
        }
        self.rebuild();
    }

    /// Scales the curve once enough batches in a row disagree with it the same way.
    fn drift(&mut self, size: u32, took_us: f64) -> Option<f64> {
        self.run.push((size, took_us));
        let mut ratios: Vec<f64> =
            self.run.iter().map(|(size, took_us)| took_us / self.interpolate(*size)).collect();
        ratios.sort_by(f64::total_cmp);
        if ratios[0] < 1.0 && ratios[ratios.len() - 1] > 1.0 {
            self.run.drain(..self.run.len() - 1);
            return None;
        }
        if ratios.len() < DRIFT_RUN {
            return None;
        }
        let factor = ratios[DRIFT_RUN / 2];
        for point in &mut self.points {
            point.mean_us *= factor;
        }
        self.run.clear();
        self.ratios.clear();
        self.oldest = 0;
        self.rebuild();
        Some(factor)
    }

    fn remember(&mut self, ratio: f64) {
        if self.ratios.len() < WINDOW {
            self.ratios.push(ratio);
        } else {
            self.ratios[self.oldest] = ratio;
            self.oldest = (self.oldest + 1) % WINDOW;
        }
    }

    /// Notes the time of a batch at its size, and gives the last one there.
    ///
    /// A size that is being used gets a point of its own, where there is room for one.
    fn note(&mut self, size: u32, took_us: f64) -> Option<f64> {
        let above = self.points.partition_point(|point| point.size < size);
        if let Some(point) = self.points.get_mut(above).filter(|point| point.size == size) {
            point.seen = point.seen.saturating_add(1);
            let before_us = point.last_us.replace(took_us)?;
            self.compare(before_us, took_us);
            return Some(before_us);
        }
        let roomy = above == 0 || size - self.points[above - 1].size > size / 32;
        if self.points.len() < MOST_POINTS && roomy {
            let mean_us = self.interpolate(size);
            let first_us = self.interpolate_by(size, |point| point.first_us);
            let last_us = Some(took_us);
            self.points.insert(above, Point { size, mean_us, first_us, seen: 1, last_us });
        }
        None
    }

    /// Learns the noise from two batches of one size, which differ by nothing else.
    fn compare(&mut self, before_us: f64, took_us: f64) {
        let apart = (took_us / before_us).ln().clamp(-1.0, 1.0);
        let variance = self.noise * self.noise;
        self.noise = (variance + NOISE_GAIN * (apart * apart / 2.0 - variance)).sqrt();
    }

    fn pull(&mut self, size: u32, ratio: f64) {
        let (low, high, between) = self.bracket(size);
        let calm = CALM / self.noise.max(CALM);
        for (index, point) in self.points.iter_mut().enumerate() {
            let near = if index == low {
                1.0 - between
            } else if index == high {
                between
            } else {
                0.0
            };
            let gain = calm * NEAR.max(1.0 / f64::from(point.seen.max(1)));
            let gain = FAR + (gain - FAR).max(0.0) * near;
            point.mean_us *= 1.0 + gain * (ratio - 1.0);
        }
    }

    /// The points around `size`, and how far it stands from the first to the second.
    fn bracket(&self, size: u32) -> (usize, usize, f64) {
        let above = self.points.partition_point(|point| point.size < size);
        if above == 0 {
            return (0, 0, 0.0);
        }
        if above == self.points.len() {
            return (above - 1, above - 1, 0.0);
        }
        let (low, high) = (self.points[above - 1].size, self.points[above].size);
        (above - 1, above, f64::from(size - low) / f64::from(high - low))
    }

    fn interpolate(&self, size: u32) -> f64 {
        self.interpolate_by(size, |point| point.mean_us)
    }

    fn interpolate_by(&self, size: u32, value: impl Fn(&Point) -> f64) -> f64 {
        let (low, high, between) = self.bracket(size);
        let last = &self.points[self.points.len() - 1];
        if size > last.size {
            return value(last) * f64::from(size) / f64::from(last.size);
        }
        value(&self.points[low]) * (1.0 - between) + value(&self.points[high]) * between
    }

    fn rebuild(&mut self) {
        self.unread = 0;
        self.sorted.clone_from(&self.ratios);
        self.sorted.sort_unstable_by(f64::total_cmp);
        self.spread = self.quantile(HIGH);
        self.smooth();
        let mut best = 1;
        for size in 1..self.mean_us.len() {
            if size as f64 * self.mean_us[best] > best as f64 * self.mean_us[size] * WORTH {
                best = size;
            }
            self.efficient[size] = best as u32;
        }
    }

    /// Fills the table so that no size is faster than a smaller one: midway between raising those
    /// that are and lowering those before them, as noise errs both ways.
    fn smooth(&mut self) {
        let last = self.mean_us.len() - 1;
        let mut ceiling = f64::INFINITY;
        for size in (1..=last).rev() {
            ceiling = ceiling.min(self.interpolate(size as u32));
            self.mean_us[size] = ceiling;
        }
        let mut floor: f64 = 0.0;
        for size in 1..=last {
            floor = floor.max(self.interpolate(size as u32));
            self.mean_us[size] = f64::midpoint(self.mean_us[size], floor);
        }
    }

    /// A quantile of what was seen, leaning on the first guess while little has been.
    fn quantile(&self, share: f64) -> f64 {
        let seen = self.sorted.len();
        let rank = ((seen as f64 * share) as usize).min(seen.saturating_sub(1));
        let at_rank = self.sorted.get(rank).copied().unwrap_or(FIRST_SPREAD);
        let trust = self.trust();
        (trust * at_rank + (1.0 - trust) * FIRST_SPREAD).clamp(1.0, LARGEST_SPREAD)
    }

    /// How far what was seen outweighs the first guess.
    fn trust(&self) -> f64 {
        (self.sorted.len() as f64 / (WINDOW / 4) as f64).min(1.0)
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

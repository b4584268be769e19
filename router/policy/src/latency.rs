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
const QUANTILE: f64 = 0.72;
const FIRST_SPREAD: f64 = 1.05;
const LARGEST_SPREAD: f64 = 3.0;
const NEAR: f64 = 0.15;
const FAR: f64 = 0.02;
const DRIFT_UP: f64 = 1.2;
const DRIFT_DOWN: f64 = 0.8;
const DRIFT_RUN: usize = 3;
const REBUILD_EVERY: u32 = 4;
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
    ratios: Vec<f64>,
    oldest: usize,
    run: Vec<f64>,
    spread: f64,
    noise: f64,
    unread: u32,
    mean_us: Vec<f64>,
    high_us: Vec<f64>,
    efficient: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    size: u32,
    mean_us: f64,
    seen: u32,
}

impl Latency {
    /// Starts from measured points, for batches of 1 to `max` rows.
    pub fn new(measured: &[(u32, Duration)], max: u32) -> Self {
        assert!(!measured.is_empty(), "a latency curve needs at least one point");
        assert!(max >= 1);
        let mut points: Vec<Point> = measured
            .iter()
            .map(|(size, took)| Point {
                size: (*size).max(1),
                mean_us: (took.as_secs_f64() * 1e6).max(1.0),
                seen: KNOWN,
            })
            .collect();
        points.sort_by_key(|point| point.size);
        points.dedup_by_key(|point| point.size);
        let mut latency = Self {
            points,
            ratios: Vec::with_capacity(WINDOW),
            oldest: 0,
            run: Vec::with_capacity(DRIFT_RUN),
            spread: FIRST_SPREAD,
            noise: 0.0,
            unread: 0,
            mean_us: vec![0.0; max as usize + 1],
            high_us: vec![0.0; max as usize + 1],
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
        self.high_us = vec![0.0; length];
        self.efficient = vec![0; length];
        self.rebuild();
    }

    /// The expected time of a batch of `size` rows.
    pub fn mean(&self, size: u32) -> Duration {
        from_micros(self.mean_us[self.index(size)])
    }

    /// The time a batch of `size` rows rarely exceeds.
    pub fn high(&self, size: u32) -> Duration {
        from_micros(self.high_us[self.index(size)])
    }

    /// The largest batch that rarely exceeds `budget`; 0 if not even one row fits.
    pub fn largest_within(&self, budget: Duration) -> u32 {
        let budget_us = budget.as_secs_f64() * 1e6;
        (self.high_us[1..].partition_point(|high| *high <= budget_us)) as u32
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
            point.size >= step.saturating_sub(best / 16) && point.size > best && point.seen >= KNOWN
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
        self.run.push(ratio);
        if let Some(factor) = self.drift() {
            for point in &mut self.points {
                point.mean_us *= factor;
            }
            self.run.clear();
            self.ratios.clear();
            self.oldest = 0;
            self.rebuild();
            return Change::Drifted(factor);
        }
        self.remember(ratio);
        self.add_point(size);
        self.pull(size, ratio.clamp(0.5, 2.0));
        self.unread += 1;
        if self.unread >= REBUILD_EVERY || self.ratios.len() < WINDOW / 4 {
            self.rebuild();
        }
        Change::Steady
    }

    fn drift(&mut self) -> Option<f64> {
        if self.run.len() > DRIFT_RUN {
            self.run.remove(0);
        }
        if self.run.len() < DRIFT_RUN {
            return None;
        }
        let unusual = (2.0 * self.noise).exp();
        let slower = self.run.iter().all(|ratio| *ratio > DRIFT_UP.max(unusual));
        let faster = self.run.iter().all(|ratio| *ratio < DRIFT_DOWN.min(1.0 / unusual));
        if !slower && !faster {
            return None;
        }
        let mut run = self.run.clone();
        run.sort_by(f64::total_cmp);
        Some(run[DRIFT_RUN / 2])
    }

    fn remember(&mut self, ratio: f64) {
        if self.ratios.len() < WINDOW {
            self.ratios.push(ratio);
        } else {
            self.ratios[self.oldest] = ratio;
            self.oldest = (self.oldest + 1) % WINDOW;
        }
    }

    /// Gives a size that is being used a point of its own, where there is room for one.
    fn add_point(&mut self, size: u32) {
        let above = self.points.partition_point(|point| point.size < size);
        if let Some(point) = self.points.get_mut(above).filter(|point| point.size == size) {
            point.seen = point.seen.saturating_add(1);
            return;
        }
        let roomy = above == 0 || size - self.points[above - 1].size > size / 32;
        if self.points.len() < MOST_POINTS && roomy {
            let mean_us = self.interpolate(size);
            self.points.insert(above, Point { size, mean_us, seen: 1 });
        }
    }

    fn pull(&mut self, size: u32, ratio: f64) {
        let (low, high, between) = self.bracket(size);
        for (index, point) in self.points.iter_mut().enumerate() {
            let near = if index == low {
                1.0 - between
            } else if index == high {
                between
            } else {
                0.0
            };
            let gain = FAR + (NEAR.max(1.0 / f64::from(point.seen.max(1))) - FAR) * near;
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
        let (low, high, between) = self.bracket(size);
        let last = self.points[self.points.len() - 1];
        if size > last.size {
            return last.mean_us * f64::from(size) / f64::from(last.size);
        }
        self.points[low].mean_us * (1.0 - between) + self.points[high].mean_us * between
    }

    fn rebuild(&mut self) {
        self.unread = 0;
        self.spread = self.quantile();
        self.noise = self.deviation();
        let mut best = 1;
        let (mut mean_floor, mut high_floor): (f64, f64) = (0.0, 0.0);
        for size in 1..self.mean_us.len() {
            let mean = self.interpolate(size as u32);
            mean_floor = mean_floor.max(mean);
            high_floor = high_floor.max(mean * self.spread);
            self.mean_us[size] = mean_floor;
            self.high_us[size] = high_floor;
            if size as f64 * self.mean_us[best] > best as f64 * mean_floor * WORTH {
                best = size;
            }
            self.efficient[size] = best as u32;
        }
    }

    /// The high quantile of what was seen, leaning on the first guess while little has been.
    fn quantile(&self) -> f64 {
        let seen = self.ratios.len();
        if seen == 0 {
            return self.spread;
        }
        let mut sorted = self.ratios.clone();
        let rank = ((seen as f64 * QUANTILE) as usize).min(seen - 1);
        let (_, at_rank, _) = sorted.select_nth_unstable_by(rank, f64::total_cmp);
        let trust = (seen as f64 / (WINDOW / 4) as f64).min(1.0);
        (trust * *at_rank + (1.0 - trust) * FIRST_SPREAD).clamp(1.0, LARGEST_SPREAD)
    }

    /// The standard deviation of the logarithm of observed over expected.
    fn deviation(&self) -> f64 {
        let seen = self.ratios.len().max(1) as f64;
        (self.ratios.iter().map(|ratio| ratio.ln().powi(2)).sum::<f64>() / seen).sqrt()
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
        for round in 0..400 {
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
            let jitter = if round % 10 == 0 { 1.15 } else { 1.0 };
            latency.observe(16, ms(26.0 * jitter));
        }
        assert!(latency.spread() > 1.1, "{}", latency.spread());
        for _ in 0..256 {
            latency.observe(16, ms(26.0));
        }
        assert!(latency.spread() < 1.02, "{}", latency.spread());
    }
}

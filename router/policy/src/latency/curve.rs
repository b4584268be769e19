//! The curve itself: a few sizes and the time each takes, pulled about by what is seen.

use std::{ops::RangeInclusive, time::Duration};

const NEAR: f64 = 0.15;
const FAR: f64 = 0.02;
const FIRST_NOISE: f64 = 0.05;
const NOISE_GAIN: f64 = 0.06;
/// The deviation up to which a single batch is believed.
const CALM: f64 = 0.03;
const DOUBT: f64 = 0.9;
const KNOWN: u32 = 10;
const MOST_POINTS: usize = 64;

/// Time by batch size, linear between the sizes it holds.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    points: Vec<Point>,
    /// The standard deviation of the logarithm of a batch's time.
    noise: f64,
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

impl Curve {
    pub(super) fn new(measured: &[(u32, Duration)]) -> Self {
        assert!(!measured.is_empty(), "a latency curve needs at least one point");
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
        Self { points, noise: FIRST_NOISE }
    }

    pub(super) fn noise(&self) -> f64 {
        self.noise
    }

    /// The expected time of a batch of `size` rows.
    pub(super) fn interpolate(&self, size: u32) -> f64 {
        self.interpolate_by(size, |point| point.mean_us)
    }

    /// What a batch of `size` rows took at first.
    pub(super) fn first(&self, size: u32) -> f64 {
        self.interpolate_by(size, |point| point.first_us)
    }

    /// Whether a size in `sizes` has been seen often enough to be judged.
    pub(super) fn knows(&self, sizes: RangeInclusive<u32>) -> bool {
        self.points.iter().any(|point| point.seen >= KNOWN && sizes.contains(&point.size))
    }

    pub(super) fn scale(&mut self, factor: f64) {
        for point in &mut self.points {
            point.mean_us *= factor;
        }
    }

    /// Takes `factor` times as long from the start, and has seen nothing yet.
    pub(super) fn restart(&mut self, factor: f64) {
        for point in &mut self.points {
            let mean_us = (point.mean_us * factor).max(1.0);
            *point = Point { mean_us, first_us: mean_us, seen: KNOWN, last_us: None, ..*point };
        }
    }

    /// Moves a step towards what was measured at first, where that was faster.
    pub(super) fn doubt(&mut self) {
        for point in &mut self.points {
            point.mean_us = point.mean_us.min((point.mean_us * DOUBT).max(point.first_us));
        }
    }

    /// Notes the time of a batch at its size, and gives the last one there.
    ///
    /// A size that is being used gets a point of its own, where there is room for one.
    pub(super) fn note(&mut self, size: u32, took_us: f64) -> Option<f64> {
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
            let first_us = self.first(size);
            let last_us = Some(took_us);
            self.points.insert(above, Point { size, mean_us, first_us, seen: 1, last_us });
        }
        None
    }

    /// Pulls the points around `size` by `ratio` of observed over expected, and the others a little.
    pub(super) fn pull(&mut self, size: u32, ratio: f64) {
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

    /// Learns the noise from two batches of one size, which differ by nothing else.
    fn compare(&mut self, before_us: f64, took_us: f64) {
        let apart = (took_us / before_us).ln().clamp(-1.0, 1.0);
        let variance = self.noise * self.noise;
        self.noise = (variance + NOISE_GAIN * (apart * apart / 2.0 - variance)).sqrt();
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

    fn interpolate_by(&self, size: u32, value: impl Fn(&Point) -> f64) -> f64 {
        let (low, high, between) = self.bracket(size);
        let last = &self.points[self.points.len() - 1];
        if size > last.size {
            return value(last) * f64::from(size) / f64::from(last.size);
        }
        value(&self.points[low]) * (1.0 - between) + value(&self.points[high]) * between
    }
}

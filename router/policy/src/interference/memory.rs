//! What was learned about one thing, and how well the last predictions did.

use std::time::Duration;

use crate::moment::Moment;

/// How much of a new ratio is believed at once.
const GAIN: f64 = 0.1;
/// No correction is larger, nor smaller than its inverse: more is a fault, not interference.
const MOST: f64 = 3.0;
/// After so long without being seen, half of a correction is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(900);
/// Predictions of which the median is taken.
const WINDOW: usize = 512;

/// Observed over predicted, averaged and slowly forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correction {
    /// Of the ratio's logarithm, since twice as long and half as long are as far off.
    log: f64,
    seen: u32,
    seen_at: Moment,
}

impl Default for Correction {
    fn default() -> Self {
        Self { log: 0.0, seen: 0, seen_at: Moment::default() }
    }
}

impl Correction {
    pub(super) fn at(&self, now: Moment) -> f64 {
        let age = now.since(self.seen_at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        (self.log * 0.5_f64.powf(age)).exp()
    }

    /// Learns from one ratio; the first few count as much as each other.
    pub(super) fn learn(&mut self, ratio: f64, now: Moment) {
        let log = self.at(now).ln();
        self.seen = self.seen.saturating_add(1);
        let gain = GAIN.max(1.0 / f64::from(self.seen));
        self.log = log + gain * (ratio.clamp(1.0 / MOST, MOST).ln() - log);
        self.seen_at = now;
    }

    /// As it was left: `factor` learned from `seen` batches, and not seen again for `away`.
    pub(super) fn recalled(factor: f64, seen: u32, away: Duration, now: Moment) -> Self {
        let log = factor.clamp(1.0 / MOST, MOST).ln();
        let forgotten = 0.5_f64.powf(away.as_secs_f64() / HALF_LIFE.as_secs_f64());
        Self { log: log * forgotten, seen, seen_at: now }
    }

    pub(super) fn seen(&self) -> u32 {
        self.seen
    }

    pub(super) fn seen_at(&self) -> Moment {
        self.seen_at
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Errors {
    last: Vec<f64>,
    next: usize,
}

impl Errors {
    pub(super) fn add(&mut self, error: f64) {
        if self.last.len() < WINDOW {
            self.last.push(error);
        } else {
            self.last[self.next] = error;
        }
        self.next = (self.next + 1) % WINDOW;
    }

    pub(super) fn median(&self) -> Option<f64> {
        let mut sorted = self.last.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

//! What came of a run.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency told apart from longer ones.
const LONGEST_MICROS: u64 = 3_600_000_000;
/// Digits of a latency that are kept.
const DIGITS: u8 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    pub offered: u64,
    pub in_time: u64,
    pub late: u64,
    pub refused: u64,
    /// Refused within 5 ms of arrival.
    pub refused_early: u64,
    /// Refused after the deadline, having been on no replica.
    pub refused_late: u64,
    /// Failed: cut off by the router's end, or given up after too many replicas failed.
    pub failed: u64,
}

impl Outcome {
    /// The share of the offered that was answered in time.
    pub fn attainment(&self) -> f64 {
        self.in_time as f64 / self.offered.max(1) as f64
    }

    /// The share of the answered that was late.
    pub fn lateness(&self) -> f64 {
        self.late as f64 / (self.in_time + self.late).max(1) as f64
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            in_time: self.in_time + other.in_time,
            late: self.late + other.late,
            refused: self.refused + other.refused,
            refused_early: self.refused_early + other.refused_early,
            refused_late: self.refused_late + other.refused_late,
            failed: self.failed + other.failed,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    pub batches: u64,
    pub rows: u64,
    /// From arrival to answer, in microseconds, of all that were answered.
    pub latency: Histogram<u64>,
}

impl Default for Served {
    fn default() -> Self {
        let latency = Histogram::new_with_bounds(1, LONGEST_MICROS, DIGITS)
            .expect("the bounds are those of the library's documentation");
        Self { batches: 0, rows: 0, latency }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// By stream, without the warm-up.
    pub streams: Vec<Outcome>,
    /// By model, without the warm-up.
    pub models: Vec<Served>,
    /// By tenth of a second of arrival, over the whole run.
    pub tenths: Vec<Tenth>,
    /// GPU-seconds that slices were busy, each by its part of its GPU's compute.
    pub busy_gpu_s: f64,
    pub events: u64,
    /// The median error of predicted slowdowns at first and after a minute, as parts of what was
    /// seen; none where nothing was predicted.
    pub slowdown_errors: [Option<f64>; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tenth {
    pub offered: u64,
    pub in_time: u64,
    pub late: u64,
}

impl Tenth {
    pub fn plus(self, other: Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            in_time: self.in_time + other.in_time,
            late: self.late + other.late,
        }
    }
}

impl Report {
    pub fn total(&self) -> Outcome {
        self.streams.iter().copied().fold(Outcome::default(), Outcome::plus)
    }

    /// Rows per batch.
    pub fn mean_batch(&self) -> f64 {
        let rows: u64 = self.models.iter().map(|model| model.rows).sum();
        let batches: u64 = self.models.iter().map(|model| model.batches).sum();
        rows as f64 / batches.max(1) as f64
    }

    pub fn between(&self, from: Duration, to: Duration) -> Tenth {
        let tenth = |at: Duration| (at.as_millis() / 100) as usize;
        let span = &self.tenths[tenth(from)..tenth(to)];
        span.iter().copied().fold(Tenth::default(), Tenth::plus)
    }
}

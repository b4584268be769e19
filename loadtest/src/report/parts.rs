//! The pieces reports are made of.

use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Serialize};

use crate::tally::{Counts, Interval, Tally};

/// Points of the percentile curve: 1 - 10^(-n/4).
const CURVE_POINTS: i32 = 16;

/// How requests ended; the five are all of them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ends {
    pub offered: u64,
    /// Answered within the objective.
    pub in_time: u64,
    pub late: u64,
    /// Turned away (503, 429).
    pub refused: u64,
    /// Given up by the server at their deadline (504).
    pub too_late: u64,
    pub failed: u64,
    /// `in_time / offered`.
    pub share_in_time: f64,
}

impl From<&Counts> for Ends {
    fn from(counts: &Counts) -> Self {
        Self {
            offered: counts.offered(),
            in_time: counts.in_time,
            late: counts.late,
            refused: counts.refused,
            too_late: counts.too_late,
            failed: counts.failed,
            share_in_time: counts.share_in_time(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Spread {
    pub(super) fn of<C: Counter>(us: &Histogram<C>) -> Self {
        if us.is_empty() {
            return Self::default();
        }
        Self {
            mean_ms: us.mean() / 1e3,
            p50_ms: quantile_ms(us, 0.5),
            p90_ms: quantile_ms(us, 0.9),
            p99_ms: quantile_ms(us, 0.99),
            p999_ms: quantile_ms(us, 0.999),
            max_ms: us.max() as f64 / 1e3,
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Refusals {
    /// Within 5 ms of when the request was due.
    pub within_5ms: u64,
    /// `within_5ms` of all refusals; 1 if there were none.
    pub share_within_5ms: f64,
    /// When the deadline had passed already: of no use to the caller.
    pub after_deadline: u64,
    #[serde(flatten)]
    pub after: Spread,
}

/// One part of a timeline.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Point {
    /// When it starts, from the start of the measured stretch.
    pub at_s: f64,
    pub covers_s: f64,
    #[serde(flatten)]
    pub ends: Ends,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

pub(super) fn timeline(tally: &Tally, seconds: f64) -> Vec<Point> {
    let whole = tally.interval.as_secs_f64();
    let point = |(index, interval): (usize, &Interval)| {
        let at_s = whole * index as f64;
        Point {
            at_s,
            covers_s: whole.min(seconds - at_s).max(f64::MIN_POSITIVE),
            ends: Ends::from(&interval.counts),
            p50_ms: quantile_ms(&interval.latency_us, 0.5),
            p99_ms: quantile_ms(&interval.latency_us, 0.99),
            max_ms: interval.latency_us.max() as f64 / 1e3,
        }
    };
    tally.intervals.iter().enumerate().map(point).collect()
}

pub(super) fn curve(us: &Histogram<u64>) -> Vec<(f64, f64)> {
    if us.is_empty() {
        return Vec::new();
    }
    let quantile = |step: i32| 1.0 - 10_f64.powf(f64::from(-step) / 4.0);
    (0..=CURVE_POINTS).map(quantile).map(|q| (q, quantile_ms(us, q))).collect()
}

fn quantile_ms<C: Counter>(us: &Histogram<C>, quantile: f64) -> f64 {
    us.value_at_quantile(quantile).min(us.max()) as f64 / 1e3
}

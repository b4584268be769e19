//! How long answers took: percentiles and the share in time over the last minute and the last hour.
//!
//! The exporter's histograms cannot be read, and their few buckets are too coarse for a percentile.
//! So each answer is also counted in a grid of eight cells per power of two, at most 12.5 % wide;
//! recording is one atomic addition. A snapshot of the grid is kept each five seconds for the minute
//! and each minute for the hour, without its empty ends: a model that answers in 1 to 100 ms takes
//! some 30 KiB, and one that nobody asks takes none.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use policy::moment::Moment;
use serde::{Deserialize, Serialize};

use super::Totals;

/// Cells of one power of two.
const PARTS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 3;
/// Up to 2^32 microseconds, which is over an hour; what takes longer counts as that.
const CELLS: usize = 32 * PARTS;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// A hundredth of fewer answers than this is less than one of them.
const ENOUGH_FOR_P99: u64 = 100;

/// Answers since the start, by how long they took.
#[derive(Debug)]
pub(super) struct Grid([AtomicU64; CELLS]);

impl Default for Grid {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; CELLS])
    }
}

impl Grid {
    pub(super) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0[cell(micros)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counts {
        let all: Vec<u64> = self.0.iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
        Counts::trimmed(&all)
    }
}

/// The cell of a time: the power of two below it, and the next three bits.
fn cell(micros: u64) -> usize {
    let micros = micros.clamp(1, (1 << 32) - 1);
    let power = micros.ilog2();
    let part = (micros << PART_BITS >> power) as usize & (PARTS - 1);
    power as usize * PARTS + part
}

/// Where a cell begins, in microseconds.
fn begins(cell: usize) -> f64 {
    let (power, part) = (cell / PARTS, cell % PARTS);
    (1_u64 << power) as f64 * (1.0 + part as f64 / PARTS as f64)
}

/// A reading of the grid without its empty ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    first: usize,
    cells: Box<[u64]>,
}

impl Counts {
    fn trimmed(all: &[u64]) -> Self {
        let Some(first) = all.iter().position(|count| *count > 0) else { return Self::default() };
        let end = all.iter().rposition(|count| *count > 0).map_or(first, |last| last + 1);
        Self { first, cells: all[first..end].into() }
    }

    fn at(&self, cell: usize) -> u64 {
        cell.checked_sub(self.first).and_then(|own| self.cells.get(own)).copied().unwrap_or(0)
    }

    /// What came since `before`, by cell.
    fn since(&self, before: &Self) -> Vec<(usize, u64)> {
        let cells = self.first..self.first + self.cells.len();
        let came = cells.map(|cell| (cell, self.at(cell).saturating_sub(before.at(cell))));
        came.filter(|(_, count)| *count > 0).collect()
    }
}

/// The time that `share` of the answers took at most, in milliseconds.
fn percentile(came: &[(usize, u64)], share: f64) -> f64 {
    let all: u64 = came.iter().map(|(_, count)| count).sum();
    let wanted = share * all as f64;
    let mut below = 0.0;
    let mut micros = 0.0;
    for (cell, count) in came {
        let count = *count as f64;
        let part = ((wanted - below) / count).clamp(0.0, 1.0);
        micros = begins(*cell) + part * (begins(cell + 1) - begins(*cell));
        below += count;
        if below >= wanted {
            break;
        }
    }
    micros / 1e3
}

/// Snapshots of one model's counts, oldest first.
#[derive(Debug)]
pub struct Latencies {
    /// Of the last minute, each as old as the counts are taken.
    fine: VecDeque<Snapshot>,
    /// Of the last hour, a minute apart.
    coarse: VecDeque<Snapshot>,
}

#[derive(Clone, Debug)]
struct Snapshot {
    at: Moment,
    counts: Counts,
    eligible: u64,
    within: u64,
}

impl Snapshot {
    fn new(at: Moment, counts: Counts, totals: &Totals) -> Self {
        Self { at, counts, eligible: totals.eligible(), within: totals.within_objective }
    }
}

impl Latencies {
    /// A memory that begins with nothing counted.
    pub fn new(now: Moment) -> Self {
        let first = Snapshot::new(now, Counts::default(), &Totals::default());
        Self { fine: VecDeque::from([first.clone()]), coarse: VecDeque::from([first]) }
    }

    pub fn take(&mut self, now: Moment, counts: Counts, totals: &Totals) {
        let snapshot = Snapshot::new(now, counts, totals);
        if self.coarse.back().is_none_or(|last| now.since(last.at) >= MINUTE) {
            self.coarse.push_back(snapshot.clone());
        }
        self.fine.push_back(snapshot);
        forget(&mut self.fine, now, MINUTE);
        forget(&mut self.coarse, now, HOUR);
    }

    pub fn view(&self, now: Moment, counts: Counts, totals: &Totals) -> LatencyView {
        let here = Snapshot::new(now, counts, totals);
        let over = |snapshots: &VecDeque<Snapshot>| stretch(snapshots.front(), &here);
        LatencyView { minute: over(&self.fine), hour: over(&self.coarse) }
    }
}

/// Forgets what is older than `span`, but for one snapshot to count from.
fn forget(snapshots: &mut VecDeque<Snapshot>, now: Moment, span: Duration) {
    while snapshots.get(1).is_some_and(|next| now.since(next.at) >= span) {
        snapshots.pop_front();
    }
}

fn stretch(from: Option<&Snapshot>, here: &Snapshot) -> Stretch {
    let from = from.unwrap_or(here);
    let came = here.counts.since(&from.counts);
    let served = came.iter().map(|(_, count)| count).sum();
    let eligible = here.eligible.saturating_sub(from.eligible);
    let within = here.within.saturating_sub(from.within);
    Stretch {
        over_s: here.at.since(from.at).as_secs_f64(),
        served,
        p50_ms: (served > 0).then(|| percentile(&came, 0.5)),
        p99_ms: (served >= ENOUGH_FOR_P99).then(|| percentile(&came, 0.99)),
        // A request in time may be counted a moment before it is counted at all.
        in_time: (eligible > 0).then(|| (within as f64 / eligible as f64).min(1.0)),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyView {
    pub minute: Stretch,
    pub hour: Stretch,
}

/// How requests of one model fared in one stretch of time that ends now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// Seconds it covers: fewer than its name says if the router is younger.
    pub over_s: f64,
    pub served: u64,
    /// Of the served, from arrival to answer; absent if none was served.
    pub p50_ms: Option<f64>,
    /// The same; absent if fewer than 100 were served.
    pub p99_ms: Option<f64>,
    /// The share answered within the objective, of all that count for it; absent if none was.
    pub in_time: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_micros(seconds * 1_000_000)
    }

    fn totals(served: u64, within_objective: u64) -> Totals {
        Totals { served, within_objective, ..Totals::default() }
    }

    #[test]
    fn percentiles_are_within_an_eighth_of_the_truth() {
        let grid = Grid::default();
        for micros in 1..=100_000 {
            grid.record(Duration::from_micros(micros));
        }
        let came = grid.read().since(&Counts::default());
        for (share, truth) in [(0.01, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = percentile(&came, share);
            assert!((found / truth - 1.0).abs() < 0.125, "{share}: {found} ms for {truth}");
        }
        let grid = Grid::default();
        (0..1_000).for_each(|_| grid.record(Duration::from_micros(1_500)));
        let found = percentile(&grid.read().since(&Counts::default()), 0.5);
        assert!((found / 1.5 - 1.0).abs() < 0.125, "{found}");
    }

    #[test]
    fn every_time_has_a_cell_that_holds_it() {
        for micros in [0, 1, 7, 8, 9, 1_000, 123_456_789, (1 << 32) - 1, u64::MAX] {
            let cell = cell(micros);
            let held = (micros as f64).clamp(1.0, ((1_u64 << 32) - 1) as f64);
            assert!(begins(cell) <= held && held < begins(cell + 1), "{micros} in cell {cell}");
        }
    }

    #[test]
    fn a_slow_minute_leaves_the_minute_and_stays_in_the_hour() {
        let grid = Grid::default();
        let mut latencies = Latencies::new(at(0));
        (0..200).for_each(|_| grid.record(Duration::from_millis(400)));
        for tick in 1..=12 {
            latencies.take(at(tick * 5), grid.read(), &totals(200, 0));
        }
        (0..800).for_each(|_| grid.record(Duration::from_millis(4)));
        for tick in 13..=25 {
            latencies.take(at(tick * 5), grid.read(), &totals(1_000, 800));
        }
        let LatencyView { minute, hour } =
            latencies.view(at(125), grid.read(), &totals(1_000, 800));
        assert_eq!((minute.over_s, hour.over_s), (60.0, 125.0));
        assert_eq!((minute.served, hour.served), (0, 1_000));
        assert_eq!((minute.in_time, hour.in_time), (None, Some(0.8)));
        assert!(hour.p50_ms.unwrap() < 5.0 && hour.p99_ms.unwrap() > 350.0, "{hour:?}");
    }

    #[test]
    fn few_answers_have_a_median_and_no_tail() {
        let grid = Grid::default();
        (0..99).for_each(|_| grid.record(Duration::from_millis(10)));
        let latencies = Latencies::new(at(0));
        let view = latencies.view(at(1), grid.read(), &totals(99, 99));
        assert!(view.minute.p50_ms.is_some());
        assert_eq!(view.minute.p99_ms, None);
        grid.record(Duration::from_millis(10));
        let view = latencies.view(at(1), grid.read(), &totals(100, 100));
        assert!(view.minute.p99_ms.is_some());
    }

    #[test]
    fn an_hour_is_kept_in_at_most_seventy_five_snapshots() {
        let mut latencies = Latencies::new(at(0));
        for tick in 1..=2_000 {
            latencies.take(at(tick * 5), Counts::default(), &Totals::default());
        }
        assert!(latencies.fine.len() + latencies.coarse.len() <= 75);
        let view = latencies.view(at(10_000), Counts::default(), &Totals::default());
        assert!((3_600.0..=3_660.0).contains(&view.hour.over_s), "{}", view.hour.over_s);
    }
}

//! A distribution that is a classic histogram and a native one at once.
//!
//! Every observation falls into one cell of a grid that has the edges of both, so each of the two is
//! an exact sum of cells and a reading never disagrees with itself. An observation is two atomic
//! additions; nothing has to be folded between scrapes.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

/// Native buckets per power of two are 2 to this power: each is 9 % wider than the one below it.
pub const SCHEMA: i32 = 3;
const PER_OCTAVE: i32 = 1 << SCHEMA;
/// The powers of two between which native buckets lie: a microsecond, or a row in a million, to
/// four hours, or a batch of 16384.
const LOWEST: i32 = -20;
const HIGHEST: i32 = 14;
/// Sums are kept in whole millionths.
const PARTS: f64 = 1e6;

/// What a histogram measures, hence its edges, which never depend on configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Time.
    Seconds,
    /// Rows of a batch.
    Rows,
}

impl Scale {
    /// The upper bounds of the classic buckets but the last, which has none.
    pub const fn bounds(self) -> &'static [f64] {
        match self {
            Self::Seconds => {
                &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
            }
            Self::Rows => &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0],
        }
    }

    fn grid(self) -> &'static Grid {
        static SECONDS: LazyLock<Grid> = LazyLock::new(|| Grid::new(Scale::Seconds.bounds()));
        static ROWS: LazyLock<Grid> = LazyLock::new(|| Grid::new(Scale::Rows.bounds()));
        match self {
            Self::Seconds => &SECONDS,
            Self::Rows => &ROWS,
        }
    }
}

/// The edges of both kinds of bucket, in one order.
#[derive(Debug)]
struct Grid {
    /// The upper edge of each cell but the last, which has none.
    edges: Vec<f64>,
    /// The first cell of each power of two from the lowest on.
    octaves: Vec<usize>,
    /// The native bucket of each cell; the first cell is in none.
    native: Vec<i32>,
}

impl Grid {
    fn new(bounds: &[f64]) -> Self {
        let native = (LOWEST * PER_OCTAVE..=HIGHEST * PER_OCTAVE).map(native_edge);
        let mut edges: Vec<f64> = native.chain(bounds.iter().copied()).collect();
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        let first =
            |power: i32| edges.partition_point(|edge| *edge < native_edge(power * PER_OCTAVE));
        let octaves = (LOWEST..=HIGHEST).map(first).collect();
        let mut index = LOWEST * PER_OCTAVE;
        let bucket = |edge: &f64| {
            let found = index;
            index += i32::from(*edge >= native_edge(index));
            found
        };
        // What is beyond the last edge is counted in the last bucket.
        let native = edges.iter().map(bucket).chain([HIGHEST * PER_OCTAVE]).collect();
        Self { octaves, native, edges }
    }

    /// The cell that holds `value`.
    fn cell(&self, value: f64) -> usize {
        // Only the octave of the value need be searched; its exponent says which that is.
        let exponent = (value.to_bits() >> 52) as i32 - 1023;
        let octave = (exponent - LOWEST).clamp(0, HIGHEST - LOWEST) as usize;
        let from = if exponent < LOWEST { 0 } else { self.octaves[octave] };
        let until = self.octaves.get(octave + 1).map_or(self.edges.len(), |next| next + 1);
        from + self.edges[from..until].partition_point(|edge| *edge < value)
    }
}

/// The upper edge of the native bucket `index`.
fn native_edge(index: i32) -> f64 {
    2f64.powf(f64::from(index) / f64::from(PER_OCTAVE))
}

/// A distribution of values that are zero or more.
#[derive(Debug)]
pub struct Histogram {
    scale: Scale,
    grid: &'static Grid,
    cells: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Upper bounds and how many observations were at most that, without the last bucket.
    pub classic: Vec<(f64, u64)>,
    /// Native buckets that hold anything, by rising index.
    pub native: Vec<(i32, u64)>,
    /// Observations too small for a native bucket.
    pub zeros: u64,
    /// Observations.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl Histogram {
    /// An empty one.
    pub fn new(scale: Scale) -> Self {
        let grid = scale.grid();
        let cells = (0..=grid.edges.len()).map(|_| AtomicU64::new(0)).collect();
        Self { scale, grid, cells, sum: AtomicU64::new(0) }
    }

    /// Adds an observation.
    pub fn record(&self, value: f64) {
        self.cells[self.grid.cell(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * PARTS).round() as u64, Ordering::Relaxed);
    }

    /// What was observed so far.
    pub fn read(&self) -> Reading {
        let sum = self.sum.load(Ordering::Relaxed) as f64 / PARTS;
        let counts: Vec<u64> = self.cells.iter().map(|cell| cell.load(Ordering::Relaxed)).collect();
        let mut reading =
            Reading { classic: Vec::new(), native: Vec::new(), zeros: counts[0], count: 0, sum };
        let mut bounds = self.scale.bounds().iter().copied().peekable();
        let edges = self.grid.edges.iter().copied().chain([f64::INFINITY]);
        for (cell, (count, edge)) in counts.iter().zip(edges).enumerate() {
            reading.count += count;
            if cell > 0 && *count > 0 {
                reading.add_native(self.grid.native[cell], *count);
            }
            if bounds.next_if_eq(&edge).is_some() {
                reading.classic.push((edge, reading.count));
            }
        }
        reading
    }
}

impl Reading {
    fn add_native(&mut self, index: i32, count: u64) {
        match self.native.last_mut() {
            Some((last, sum)) if *last == index => *sum += count,
            Some(_) | None => self.native.push((index, count)),
        }
    }

    /// The value up to which an observation counts as zero in the native form.
    pub fn zero_threshold() -> f64 {
        native_edge(LOWEST * PER_OCTAVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scale: Scale, values: &[f64]) -> Reading {
        let histogram = Histogram::new(scale);
        values.iter().for_each(|value| histogram.record(*value));
        histogram.read()
    }

    #[test]
    fn a_value_on_a_classic_edge_is_in_the_bucket_below_it() {
        let at = |value: f64| {
            let reading = of(Scale::Seconds, &[value]);
            reading.classic.iter().find(|(_, count)| *count == 1).map(|(bound, _)| *bound)
        };
        for bound in Scale::Seconds.bounds() {
            assert_eq!(at(*bound), Some(*bound));
            assert!(at(bound * 1.0001) != Some(*bound), "just above {bound}");
            assert_eq!(at(bound * 0.9999), Some(*bound), "just below {bound}");
        }
        assert_eq!(at(10.1), None);
    }

    #[test]
    fn a_native_bucket_holds_what_is_above_the_edge_below_it_and_not_above_its_own() {
        let mut value = 1.1e-6;
        while value < 16_000.0 {
            let (index, count) = of(Scale::Seconds, &[value]).native[0];
            assert_eq!(count, 1);
            let (below, above) = (native_edge(index - 1), native_edge(index));
            assert!(below < value && value <= above, "{value} in ({below}, {above}]");
            value *= 1.013;
        }
        for index in -60..60 {
            let edge = native_edge(index);
            assert_eq!(of(Scale::Rows, &[edge]).native, [(index, 1)], "{edge}");
        }
    }

    #[test]
    fn both_forms_count_the_same_whatever_the_values() {
        let values = [0.0, 1e-9, 5e-7, 0.001, 0.0011, 0.05, 0.051, 3.0, 9.9, 11.0, 1e5, 1e300];
        let reading = of(Scale::Seconds, &values);
        let native: u64 = reading.native.iter().map(|(_, count)| count).sum();
        assert_eq!(reading.count, values.len() as u64);
        assert_eq!(native + reading.zeros, reading.count);
        assert_eq!(reading.zeros, 3);
        assert!(reading.classic.is_sorted_by(|a, b| a.1 <= b.1));
        assert_eq!(reading.classic.last(), Some(&(10.0, 9)));
    }

    #[test]
    fn the_sum_is_that_of_the_values_to_a_millionth() {
        let reading = of(Scale::Seconds, &[0.25, 0.000_001, 2.0]);
        assert!((reading.sum - 2.250_001).abs() < 1e-9, "{}", reading.sum);
    }
}

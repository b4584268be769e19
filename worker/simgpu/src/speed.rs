//! How long batches of one model take on one kind of slice.

use std::{collections::BTreeSet, time::Duration};

use crate::SimError;

/// The longest a batch is said to take.
const LONGEST_MS: f64 = 600_000.0;

/// Milliseconds by batch size, rising by size; straight lines between.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Curve(pub(crate) Vec<(u32, f64)>);

impl Curve {
    /// The time of a batch of `rows`; past the largest the last line goes on, and one point alone
    /// is a constant.
    fn ms(&self, rows: u32) -> f64 {
        let points = &self.0;
        let above = points.partition_point(|(batch, _)| *batch < rows);
        let line = match above {
            0 => return points.first().map_or(LONGEST_MS, |(_, ms)| *ms),
            _ if points.len() == 1 => return points[0].1,
            _ => {
                let high = above.min(points.len() - 1);
                [points[high - 1], points[high]]
            }
        };
        let [(small, less), (large, more)] = line;
        less + (more - less) * f64::from(rows - small) / f64::from(large - small)
    }

    fn largest(&self) -> u32 {
        self.0.last().map_or(0, |(batch, _)| *batch)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// By processes, at least one.
    curves: Vec<(u32, Curve)>,
}

impl Speed {
    pub(crate) fn new(curves: Vec<(u32, Curve)>) -> Self {
        assert!(!curves.is_empty());
        Self { curves }
    }

    /// The time of a batch of `batch` rows while `processes`, its own among them, are busy on the
    /// slice.
    ///
    /// Between measured numbers of processes times lie on a straight line; past the largest the
    /// slice gives no more throughput, so times grow with the number.
    pub fn batch_ms(&self, batch: u32, processes: u32) -> Result<f64, SimError> {
        if batch == 0 {
            return Err(SimError::EmptyBatch);
        }
        if processes == 0 {
            return Err(SimError::NoProcess);
        }
        let above = self.curves.partition_point(|(known, _)| *known < processes);
        let ms = match above {
            0 => self.of(0, batch),
            _ if above == self.curves.len() => {
                let last = above - 1;
                self.of(last, batch) * f64::from(processes) / f64::from(self.curves[last].0)
            }
            _ => {
                let (few, many) = (self.curves[above - 1].0, self.curves[above].0);
                let (less, more) = (self.of(above - 1, batch), self.of(above, batch));
                less + (more - less) * f64::from(processes - few) / f64::from(many - few)
            }
        };
        Ok(ms.clamp(0.0, LONGEST_MS))
    }

    pub fn batch(&self, batch: u32, processes: u32) -> Result<Duration, SimError> {
        Ok(Duration::from_secs_f64(self.batch_ms(batch, processes)? / 1e3))
    }

    /// Measured sizes and their times for one process alone.
    pub fn alone(&self) -> &[(u32, f64)] {
        &self.curves[0].1.0
    }

    /// By the `index`-th curve. With many processes large batches ran out of memory: past the
    /// largest measured the curve of fewer processes gives the shape.
    fn of(&self, index: usize, batch: u32) -> f64 {
        let curve = &self.curves[index].1;
        let largest = curve.largest();
        if batch <= largest || index == 0 || self.curves[index - 1].1.largest() <= largest {
            return curve.ms(batch);
        }
        curve.ms(largest) * self.of(index - 1, batch) / self.of(index - 1, largest)
    }

    pub(crate) fn scaled(mut self, by: f64) -> Self {
        for (_, ms) in self.curves.iter_mut().flat_map(|(_, curve)| &mut curve.0) {
            *ms *= by;
        }
        self
    }

    pub(crate) fn merged(&self, other: &Self, of: impl Fn(u32, f64, f64) -> f64) -> Self {
        let index = |speed: &Self, processes: u32| {
            speed.curves.iter().position(|(known, _)| *known == processes)
        };
        let mut curves = Vec::new();
        for (mine, (processes, curve)) in self.curves.iter().enumerate() {
            let Some(theirs) = index(other, *processes) else { continue };
            let sizes = curve.0.iter().chain(&other.curves[theirs].1.0).map(|(batch, _)| *batch);
            let sizes: BTreeSet<u32> = sizes.collect();
            let point =
                |batch: u32| (batch, of(batch, self.of(mine, batch), other.of(theirs, batch)));
            curves.push((*processes, Curve(sizes.into_iter().map(point).collect())));
        }
        if curves.is_empty() { self.clone() } else { Self { curves } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed() -> Speed {
        let alone = Curve(vec![(1, 4.0), (8, 11.0), (16, 21.0)]);
        let three = Curve(vec![(1, 6.0), (8, 22.0)]);
        Speed::new(vec![(1, alone), (3, three)])
    }

    fn ms(batch: u32, processes: u32) -> f64 {
        speed().batch_ms(batch, processes).unwrap()
    }

    #[test]
    fn batch_times_are_linear_between_and_beyond_measured_sizes() {
        assert_eq!([ms(1, 1), ms(4, 1), ms(8, 1), ms(32, 1)], [4.0, 7.0, 11.0, 41.0]);
    }

    #[test]
    fn batch_times_interpolate_between_process_counts_and_then_grow() {
        assert_eq!([ms(1, 2), ms(1, 3), ms(1, 6)], [5.0, 6.0, 12.0]);
    }

    #[test]
    fn size_out_of_memory_keeps_the_shape_of_fewer_processes() {
        assert_eq!(ms(16, 3), 42.0);
    }

    #[test]
    fn a_batch_without_rows_or_processes_is_refused() {
        assert_eq!(speed().batch_ms(0, 1), Err(SimError::EmptyBatch));
        assert_eq!(speed().batch_ms(1, 0), Err(SimError::NoProcess));
    }
}

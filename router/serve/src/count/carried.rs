//! What a model's replicas carried end to end, from counts taken every few seconds.

use std::time::Duration;

use policy::moment::Moment;

/// Fewer rows in a stretch show nothing of a model, however slow.
pub const MODEL_ROWS: u64 = 20;
/// Fewer rows in a stretch show nothing of a router, which is busy with more than rows.
pub const ROUTER_ROWS: u64 = 1_000;
/// A stretch in which less of the time was busy shows nothing.
pub const LEAST_BUSY: f64 = 0.05;

/// What was done until some moment: rows, and the time that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    pub rows: u64,
    pub busy: Duration,
}

/// The highest rate at which something was seen to work, and what it could do if it worked all the
/// time as it did then.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    least_rows: u64,
    before: Option<(Moment, Work)>,
    highest_rps: f64,
    whole_rps: Option<f64>,
}

impl Carried {
    /// Nothing yet, where fewer rows in a stretch than `least_rows` show nothing.
    pub fn new(least_rows: u64) -> Self {
        Self { least_rows, before: None, highest_rps: 0.0, whole_rps: None }
    }

    /// Takes the counts of `now`, since when `workers` did the work.
    pub fn take(&mut self, now: Moment, work: Work, workers: f64) {
        let Some((at, before)) = self.before.replace((now, work)) else { return };
        let elapsed = now.since(at).as_secs_f64() * workers.max(1.0);
        let rows = work.rows.saturating_sub(before.rows);
        let busy = work.busy.saturating_sub(before.busy).as_secs_f64();
        if elapsed <= 0.0 || rows < self.least_rows || busy < LEAST_BUSY * elapsed {
            return;
        }
        let (rate, share) = (rows as f64 / elapsed, (busy / elapsed).min(1.0));
        if rate >= self.highest_rps {
            (self.highest_rps, self.whole_rps) = (rate, Some(rate / share));
        }
    }

    /// What one worker could do by that; nothing before enough was seen.
    pub fn whole_rps(&self) -> Option<f64> {
        self.whole_rps
    }

    /// Forgets the rate, where what worked is another now.
    pub fn forget(&mut self) {
        (self.highest_rps, self.whole_rps) = (0.0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each second so many rows, in so much of it.
    fn carried(seconds: &[(u64, u64)], workers: f64) -> Option<f64> {
        let (mut carried, mut work) = (Carried::new(200), Work::default());
        carried.take(Moment::from_micros(0), work, workers);
        for (second, (rows, busy_ms)) in (1..).zip(seconds) {
            work.rows += rows;
            work.busy += Duration::from_millis(*busy_ms);
            carried.take(Moment::from_micros(second * 1_000_000), work, workers);
        }
        carried.whole_rps()
    }

    #[test]
    fn half_busy_carries_half_of_what_could_be() {
        assert_eq!(carried(&[(1_000, 500)], 1.0), Some(2_000.0));
        assert_eq!(carried(&[(1_000, 1_000)], 2.0), Some(1_000.0), "two were half busy each");
    }

    #[test]
    fn the_highest_rate_counts_and_not_the_luckiest() {
        assert_eq!(carried(&[(400, 100), (1_000, 1_000), (300, 60)], 1.0), Some(1_000.0));
    }

    #[test]
    fn too_little_shows_nothing() {
        assert_eq!(carried(&[(199, 900)], 1.0), None, "too few rows");
        assert_eq!(carried(&[(5_000, 40)], 1.0), None, "too little work");
        assert_eq!(carried(&[], 1.0), None);
    }
}

//! The Gittins index: who is most likely to end soon, by how long others took.

use super::{Order, Rank};
use crate::loan::{Job, LoanWorld};

/// GPU-seconds that a new job is looked ahead, as Tiresias has it; an old one is looked ahead by as
/// much as it has had, in doublings, since few jobs are as old and each would move the index.
const STEP: f64 = 3250.0;
/// Finished jobs that are remembered.
const REMEMBERED: usize = 4096;
/// Indexes that differ by less than this factor are alike.
const ALIKE: f64 = 4.0;

/// The service of jobs that finished, newest forgotten last.
#[derive(Clone, Debug, Default)]
pub struct History {
    recent: Vec<f64>,
    next: usize,
    sorted: Vec<f64>,
    /// The sum of the first so many of `sorted`.
    sums: Vec<f64>,
}

impl History {
    pub fn add(&mut self, service: f64) {
        if self.recent.len() < REMEMBERED {
            self.recent.push(service);
        } else {
            let old = std::mem::replace(&mut self.recent[self.next], service);
            self.sorted.remove(self.below(old));
            self.next = (self.next + 1) % REMEMBERED;
        }
        self.sorted.insert(self.below(service), service);
        self.sums.clear();
        self.sums.push(0.0);
        let mut sum = 0.0;
        for service in &self.sorted {
            sum += service;
            self.sums.push(sum);
        }
    }

    fn below(&self, service: f64) -> usize {
        self.sorted.partition_point(|other| *other < service)
    }

    /// The chance to end within the next step over the service that is expected to take, for a job
    /// that has had `service`; nothing if no job is remembered that took more.
    fn index(&self, service: f64) -> Option<f64> {
        let service =
            if service < STEP { 0.0 } else { STEP * (service / STEP).log2().floor().exp2() };
        let step = service.max(STEP);
        let (from, to) = (self.below(service), self.below(service + step));
        let (all, end) = (self.sorted.len() - from, to - from);
        if all == 0 {
            return None;
        }
        let ended: f64 = self.sums[to] - self.sums[from] - service * end as f64;
        let expected = ended + step * (all - end) as f64;
        Some(end as f64 / expected.max(f64::MIN_POSITIVE))
    }
}

/// By the Gittins index over the service of the jobs that finished.
#[derive(Clone, Copy, Debug)]
pub struct Gittins;

impl Order for Gittins {
    fn name(&self) -> &'static str {
        "gittins"
    }

    fn rank(&self, job: &Job, world: &LoanWorld<'_>) -> Rank {
        // One beyond all experience is not expected to end soon.
        let index = world.history.index(job.counted()).unwrap_or(0.0).max(1e-12);
        Rank::band(-(index.ln() / ALIKE.ln()).floor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_about_as_old_as_others_ended_at_has_the_larger_index() {
        let mut history = History::default();
        for service in [5000.0, 5100.0, 5200.0, 90_000.0] {
            history.add(service);
        }
        let index = |service: f64| history.index(service).unwrap();
        let (young, ripe, old) = (index(0.0), index(4900.0), index(7000.0));
        assert!(ripe > young, "{ripe} {young}");
        assert!(old < ripe, "{old} {ripe}");
        assert_eq!(history.index(200_000.0), None);
    }

    #[test]
    fn only_the_newest_are_remembered() {
        let mut history = History::default();
        (0..REMEMBERED).for_each(|_| history.add(10.0));
        (0..REMEMBERED).for_each(|_| history.add(20.0));
        assert_eq!(history.sorted.len(), REMEMBERED);
        assert_eq!(history.below(20.0), 0);
    }
}

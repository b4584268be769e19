//! A job beside inference that misses its objective runs only part of the time.
//!
//! What is looked at is what was promised: the share of requests that missed, against the share that
//! may. A job that still hurts at the least part of the time gives its slices back.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    loan::{Duty, Pace},
    moment::Moment,
};

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);
/// Fewer requests than this say nothing.
const LEAST_REQUESTS: u64 = 20;
/// The least share of requests that may miss; an objective of all of them would leave no room.
const LEAST_ALLOWED: f64 = 0.001;

/// A model's requests since the router started.
#[derive(Clone, Copy, Debug)]
pub struct Attainment {
    pub eligible: u64,
    /// Of those, the ones within it.
    pub within: u64,
    /// The share of them that may miss.
    pub allowed: f64,
}

/// A job that runs, and the models with replicas on its GPUs.
#[derive(Clone, Debug)]
pub struct Running<'a> {
    pub job: u64,
    pub beside: BTreeSet<&'a str>,
}

/// The part of the time that each job runs.
#[derive(Clone, Debug, Default)]
pub struct Throttles {
    duties: BTreeMap<u64, Duty>,
    before: BTreeMap<String, Attainment>,
    looked: Option<Moment>,
}

impl Throttles {
    /// The part of the time that throttled jobs run, in percent.
    pub fn percent(&self) -> BTreeMap<u64, u8> {
        let throttled = self.duties.iter().filter(|(_, duty)| duty.part() < 1.0);
        throttled.map(|(job, duty)| (*job, (duty.part() * 100.0).round() as u8)).collect()
    }

    /// Looks how models fare beside jobs, if it is time; the jobs that must go are returned.
    pub fn look(
        &mut self,
        counts: &BTreeMap<String, Attainment>,
        running: &[Running<'_>],
        now: Moment,
    ) -> BTreeSet<u64> {
        if now.since(*self.looked.get_or_insert(now)) < EVERY {
            return BTreeSet::new();
        }
        self.looked = Some(now);
        let before = std::mem::replace(&mut self.before, counts.clone());
        let hurt = |model: &&str| excess(before.get(*model)?, counts.get(*model)?);
        self.duties.retain(|job, _| running.iter().any(|one| one.job == *job));
        let mut evicted = BTreeSet::new();
        for Running { job, beside } in running {
            let worst = beside.iter().filter_map(hurt).fold(0.0, f64::max);
            match self.duties.entry(*job).or_default().observe(worst, 1.0) {
                Pace::Full | Pace::Paused => {}
                Pace::Evict => {
                    self.duties.remove(job);
                    evicted.insert(*job);
                }
            }
        }
        evicted
    }
}

/// How many times as many requests missed as may; nothing if there were too few to tell.
fn excess(before: &Attainment, now: &Attainment) -> Option<f64> {
    let eligible = now.eligible.saturating_sub(before.eligible);
    let within = now.within.saturating_sub(before.within);
    let missed = eligible.saturating_sub(within) as f64 / eligible.max(1) as f64;
    (eligible >= LEAST_REQUESTS).then(|| missed / now.allowed.max(LEAST_ALLOWED))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a job beside `model` while `within` of each 100 requests of a second of model
    /// `m` are in time.
    fn after(model: &str, within: u64, seconds: u64) -> (Option<u8>, Vec<u64>) {
        let start = Moment::from_micros(1 << 50);
        let mut throttles = Throttles::default();
        let mut evicted = Vec::new();
        let running = [Running { job: 7, beside: [model].into() }];
        throttles.look(&BTreeMap::new(), &running, start);
        for second in 1..=seconds {
            let count =
                Attainment { eligible: second * 100, within: second * within, allowed: 0.01 };
            let counts = [("m".to_owned(), count)].into();
            let now = start + EVERY * u32::try_from(second).unwrap();
            evicted.extend(throttles.look(&counts, &running, now));
        }
        (throttles.percent().get(&7).copied(), evicted)
    }

    #[test]
    fn a_job_beside_a_model_that_misses_is_paused_and_then_evicted() {
        assert_eq!(after("m", 98, 2), (Some(50), vec![]));
        assert_eq!(after("m", 98, 5), (Some(10), vec![]));
        assert_eq!(after("m", 98, 8).1, [7]);
    }

    #[test]
    fn a_job_beside_a_model_within_its_objective_runs_on() {
        assert_eq!(after("m", 99, 8), (None, vec![]));
        assert_eq!(after("other", 50, 8), (None, vec![]));
    }
}

//! A job beside inference that misses its objective runs only part of the time.
//!
//! What is looked at is what was promised: the share of requests that missed, against the share that
//! may. A job that still hurts at the least part of the time gives its slices back.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use policy::loan::{Duty, Pace};
use tokio::time::Instant;

use crate::{
    fleet::Seen,
    jobs::{Record, State},
};

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);
/// Fewer requests than this say nothing.
const LEAST_REQUESTS: u64 = 20;
/// The least share of requests that may miss; an objective of all of them would leave no room.
const LEAST_ALLOWED: f64 = 0.001;

/// A model's requests since the router started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    pub(super) eligible: u64,
    pub(super) within: u64,
    /// The share of them that may miss.
    pub(super) allowed: f64,
}

/// The part of the time that each job runs.
#[derive(Debug)]
pub(super) struct Throttles {
    duties: HashMap<u64, Duty>,
    before: BTreeMap<String, Requests>,
    looked: Instant,
}

impl Throttles {
    pub(super) fn new(now: Instant) -> Self {
        Self { duties: HashMap::new(), before: BTreeMap::new(), looked: now }
    }

    /// The part of the time that throttled jobs run, in percent.
    pub(super) fn percent(&self) -> HashMap<u64, u8> {
        let throttled = self.duties.iter().filter(|(_, duty)| duty.part() < 1.0);
        throttled.map(|(job, duty)| (*job, (duty.part() * 100.0).round() as u8)).collect()
    }

    /// Looks how models fare beside jobs, if it is time; the jobs that must go are returned.
    pub(super) fn look(
        &mut self,
        counts: &BTreeMap<String, Requests>,
        seen: &[Seen],
        records: &[Record],
        now: Instant,
    ) -> Vec<u64> {
        if now.duration_since(self.looked) < EVERY {
            return Vec::new();
        }
        self.looked = now;
        let before = std::mem::replace(&mut self.before, counts.clone());
        let hurt = |model: &str| excess(before.get(model)?, counts.get(model)?);
        let runs = |record: &&Record| record.state == State::Running;
        self.duties
            .retain(|job, _| records.iter().any(|record| record.id == *job && runs(&record)));
        let mut evicted = Vec::new();
        for record in records.iter().filter(runs) {
            let models = beside(record, seen);
            let worst = models.into_iter().filter_map(hurt).fold(0.0, f64::max);
            let duty = self.duties.entry(record.id).or_default();
            match duty.observe(worst, 1.0) {
                Pace::Full | Pace::Paused => {}
                Pace::Evict => {
                    self.duties.remove(&record.id);
                    evicted.push(record.id);
                }
            }
        }
        evicted
    }
}

/// How many times as many requests missed as may; nothing if there were too few to tell.
fn excess(before: &Requests, now: &Requests) -> Option<f64> {
    let eligible = now.eligible.saturating_sub(before.eligible);
    let within = now.within.saturating_sub(before.within);
    let missed = eligible.saturating_sub(within) as f64 / eligible.max(1) as f64;
    (eligible >= LEAST_REQUESTS).then(|| missed / now.allowed.max(LEAST_ALLOWED))
}

/// The models with replicas on the GPUs that a job has slices of.
fn beside<'a>(record: &Record, seen: &'a [Seen]) -> Vec<&'a str> {
    let mut models = Vec::new();
    for Seen { worker, report, .. } in seen {
        for gpu in &report.gpus {
            let mine = |seat: &crate::jobs::Seat| seat.worker == *worker && seat.gpu == gpu.index;
            if record.seats.iter().any(mine) {
                let replicas = gpu.slices.iter().flat_map(|slice| &slice.replicas);
                models.extend(replicas.map(|replica| replica.model.as_str()));
            }
        }
    }
    models.sort_unstable();
    models.dedup();
    models
}

#[cfg(test)]
mod tests {
    use protocol::{GpuReport, ReplicaReport, ReplicaState, Report, SliceReport};

    use super::*;
    use crate::{jobs::Seat, lend::settle};

    fn fleet() -> Vec<Seen> {
        let replica = ReplicaReport {
            replica: 1,
            model: "m".into(),
            version: "1".into(),
            lane: 0,
            digest: 0,
            serves: true,
            state: ReplicaState::Loading,
        };
        let slice = SliceReport {
            slice: "gpu0:2g@0".into(),
            position: "2g.20gb@0".into(),
            profile: "2g.20gb".into(),
            uuid: None,
            memory_bytes: None,
            lanes: Vec::new(),
            replicas: vec![replica],
            rank: None,
        };
        let gpu = GpuReport { slices: vec![slice], ..GpuReport::default() };
        let report = Report { gpus: vec![gpu], ..Report::default() };
        vec![Seen { worker: "w".into(), report }]
    }

    fn job(gpu: u32) -> Record {
        let spec = serde_json::json!({"name": "n", "argv": [], "slices_min": 1, "slices_max": 1,
            "memory_mib": 0, "retries": 0});
        let mut record = Record::new(7, serde_json::from_value(spec).unwrap(), None, 0);
        let seat = Seat { worker: "w".into(), gpu, position: "2g.20gb@2".into() };
        settle::begin(&mut record, vec![seat], "first".into(), 0);
        record.enter(State::Running, "it runs", 0);
        record
    }

    /// What becomes of a job on `gpu` while `within` of each 100 requests of a second are in time.
    fn after(gpu: u32, within: u64, seconds: u64) -> (Option<u8>, Vec<u64>) {
        let start = Instant::now();
        let mut throttles = Throttles::new(start);
        let mut evicted = Vec::new();
        for second in 1..=seconds {
            let requests =
                Requests { eligible: second * 100, within: second * within, allowed: 0.01 };
            let counts = [("m".to_owned(), requests)].into();
            let now = start + EVERY * u32::try_from(second).unwrap();
            evicted.extend(throttles.look(&counts, &fleet(), &[job(gpu)], now));
        }
        (throttles.percent().get(&7).copied(), evicted)
    }

    #[test]
    fn a_job_beside_a_model_that_misses_is_paused_and_then_evicted() {
        assert_eq!(after(0, 98, 2), (Some(50), vec![]));
        assert_eq!(after(0, 98, 5), (Some(10), vec![]));
        assert_eq!(after(0, 98, 8).1, [7]);
    }

    #[test]
    fn a_job_beside_a_model_that_keeps_its_objective_or_on_another_gpu_runs_on() {
        assert_eq!(after(0, 99, 8), (None, vec![]));
        assert_eq!(after(1, 50, 8), (None, vec![]));
    }
}

//! What came of a study, for people and for machines.

mod following;
mod training;

use std::collections::BTreeSet;

use serde::Serialize;

pub use self::following::{FollowingSummary, Stretch};
pub use self::training::{Followed, Holding, TrainingSummary};
use crate::{
    fleet::SimFleet,
    report::{Outcome, Report},
    study::Study,
};

const POINTS: usize = 200;
const TENTH_S: f64 = 0.1;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub scenario: String,
    /// How closely time was followed: `requests` or `rates`.
    pub detail: &'static str,
    pub placement: &'static str,
    pub seed: u64,
    /// Counted, without the warm-up.
    pub simulated_s: f64,
    pub gpus: usize,
    pub gpus_used: usize,
    pub replicas: usize,
    /// The part of the used GPUs that was busy.
    pub utilisation: f64,
    pub ends: Ends,
    pub objectives_met: bool,
    pub models: Vec<ModelSummary>,
    pub timeline: Vec<Point>,
    /// The median error of predicted slowdowns at first and after a minute, where models say what
    /// they ask of what slices share.
    pub slowdown_errors: [Option<f64>; 2],
    pub following: Option<FollowingSummary>,
    pub training: Option<TrainingSummary>,
    pub events: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ends {
    pub offered: u64,
    pub in_time: u64,
    pub late: u64,
    pub refused: u64,
    pub failed: u64,
}

impl Ends {
    /// The share of the offered that was answered in time.
    pub fn attainment(&self) -> f64 {
        if self.offered == 0 { 1.0 } else { self.in_time as f64 / self.offered as f64 }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.offered += other.offered;
        self.in_time += other.in_time;
        self.late += other.late;
        self.refused += other.refused;
        self.failed += other.failed;
    }
}

impl From<Outcome> for Ends {
    fn from(outcome: Outcome) -> Self {
        let Outcome { offered, in_time, late, refused, failed, .. } = outcome;
        Self { offered, in_time, late, refused, failed }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelSummary {
    pub name: String,
    pub slo_ms: f64,
    pub target: f64,
    pub ends: Ends,
    pub attainment: f64,
    pub goodput_rps: f64,
    /// Rows per batch.
    pub mean_batch: f64,
    /// Of all answered; absent where time was followed by rates.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub replicas: usize,
}

impl ModelSummary {
    pub fn met(&self) -> bool {
        self.attainment >= self.target
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its middle.
    pub at_s: f64,
    pub offered_rps: f64,
    pub in_time_rps: f64,
}

pub(crate) fn blank(study: &Study, fleet: &SimFleet) -> Summary {
    let used: BTreeSet<usize> = fleet.replicas.iter().map(|replica| replica.gpu).collect();
    let mut replicas = vec![0; fleet.models.len()];
    for replica in &fleet.replicas {
        replicas[replica.model] += 1;
    }
    let model = |(model, replicas): (&crate::fleet::SimModel, usize)| ModelSummary {
        name: model.name.clone(),
        slo_ms: model.settings.objective.as_secs_f64() * 1e3,
        target: model.target,
        ends: Ends::default(),
        attainment: 1.0,
        goodput_rps: 0.0,
        mean_batch: 0.0,
        p50_ms: None,
        p99_ms: None,
        replicas,
    };
    Summary {
        scenario: study.name.clone(),
        detail: study.detail.name(),
        placement: study.placement.name(),
        seed: fleet.terms.seed,
        simulated_s: fleet.terms.duration.saturating_sub(fleet.terms.warmup).as_secs_f64(),
        gpus: fleet.gpus.len(),
        gpus_used: used.len(),
        replicas: fleet.replicas.len(),
        utilisation: 0.0,
        ends: Ends::default(),
        objectives_met: true,
        models: fleet.models.iter().zip(replicas).map(model).collect(),
        timeline: Vec::new(),
        slowdown_errors: [None; 2],
        following: None,
        training: None,
        events: 0,
    }
}

impl Summary {
    pub(crate) fn close(&mut self) {
        for model in &mut self.models {
            model.attainment = model.ends.attainment();
            model.goodput_rps = model.ends.in_time as f64 / self.simulated_s.max(1e-9);
            self.ends.add(model.ends);
        }
        self.objectives_met = self.models.iter().all(ModelSummary::met);
    }

    pub fn goodput_rps(&self) -> f64 {
        self.models.iter().map(|model| model.goodput_rps).sum()
    }

    pub fn models_met(&self) -> usize {
        self.models.iter().filter(|model| model.met()).count()
    }
}

pub fn of_requests(study: &Study, fleet: &SimFleet, report: &Report) -> Summary {
    let mut summary = blank(study, fleet);
    for (stream, outcome) in fleet.streams.iter().zip(&report.streams) {
        summary.models[stream.model].ends.add(Ends::from(*outcome));
    }
    for (model, served) in summary.models.iter_mut().zip(&report.models) {
        model.mean_batch = served.rows as f64 / served.batches.max(1) as f64;
        if !served.latency.is_empty() {
            let at = |quantile| served.latency.value_at_quantile(quantile) as f64 / 1e3;
            (model.p50_ms, model.p99_ms) = (Some(at(0.5)), Some(at(0.99)));
        }
    }
    let gpu_s = summary.gpus_used as f64 * fleet.terms.duration.as_secs_f64();
    summary.utilisation = report.busy_gpu_s / gpu_s.max(1e-9);
    summary.events = report.events;
    summary.slowdown_errors = report.slowdown_errors;
    let each = report.tenths.len().div_ceil(POINTS).max(1);
    for (index, tenths) in report.tenths.chunks(each).enumerate() {
        let seconds = tenths.len() as f64 * TENTH_S;
        let offered: u64 = tenths.iter().map(|tenth| tenth.offered).sum();
        let in_time: u64 = tenths.iter().map(|tenth| tenth.in_time).sum();
        summary.timeline.push(Point {
            at_s: (index * each) as f64 * TENTH_S + seconds / 2.0,
            offered_rps: offered as f64 / seconds,
            in_time_rps: in_time as f64 / seconds,
        });
    }
    summary.close();
    summary
}

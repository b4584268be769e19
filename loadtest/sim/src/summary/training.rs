//! What came of training jobs.

use serde::Serialize;

use crate::{control::SimWorkers, study::training::Training, training::Report};

const POINTS: usize = 400;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingSummary {
    pub order: &'static str,
    /// Whether tenants were kept even: `even` or `free`.
    pub tenants_kept: &'static str,
    pub loans: &'static str,
    pub gpus: u32,
    /// Jobs that ended: all of them.
    pub jobs: usize,
    /// From submission to end, the mean.
    pub completion_h: f64,
    pub completion_p50_h: f64,
    pub completion_p99_h: f64,
    pub queueing_h: f64,
    pub longest_wait_h: f64,
    pub preemptions: u64,
    pub reclaims: u64,
    /// Work done twice.
    pub lost_gpu_h: f64,
    /// What inference needed and did not have.
    pub inference_short_gpu_h: f64,
    /// Jain's index over what tenants had of what they deserved.
    pub jain: f64,
    /// The least that a tenant had of what it deserved.
    pub worst_tenant: f64,
    pub course: Vec<Holding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Holding {
    pub at_h: f64,
    /// GPUs that inference had of those that are lent; none if nothing is.
    pub inference_gpus: f64,
    pub training_gpus: f64,
    pub waiting: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct Followed<'a> {
    pub workers: &'a SimWorkers,
    pub held: &'a [Holding],
    pub reclaims: u64,
}

impl TrainingSummary {
    pub(crate) fn of_rounds(training: &Training, followed: &Followed<'_>) -> Self {
        let trained = followed.workers.trained();
        let hours = |time: std::time::Duration| time.as_secs_f64() / 3600.0;
        let mut completions: Vec<f64> = trained.iter().map(|one| hours(one.completion)).collect();
        completions.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let rank = (completions.len() as f64 * part).ceil() as usize;
            completions.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let queueing: Vec<f64> = trained.iter().map(|one| hours(one.queueing)).collect();
        let ratios = followed.workers.tenant_ratios();
        let each = followed.held.len().div_ceil(POINTS).max(1);
        Self {
            order: training.order,
            tenants_kept: if training.tenants_even { "even" } else { "free" },
            loans: training.loans.name(),
            gpus: training.gpus,
            jobs: trained.len(),
            completion_h: mean(&completions),
            completion_p50_h: at(0.5),
            completion_p99_h: at(0.99),
            queueing_h: mean(&queueing),
            longest_wait_h: queueing.iter().copied().fold(0.0, f64::max),
            preemptions: trained.iter().map(|one| u64::from(one.starts.saturating_sub(1))).sum(),
            reclaims: followed.reclaims,
            lost_gpu_h: trained.iter().map(|one| one.lost_gpu_s / 3600.0).sum(),
            inference_short_gpu_h: 0.0,
            jain: jain(&ratios),
            worst_tenant: ratios.iter().copied().fold(1.0, f64::min),
            course: followed.held.iter().step_by(each).copied().collect(),
        }
    }

    pub(crate) fn new(training: &Training, report: &Report) -> Self {
        let holding = |sample: &crate::training::Sample| Holding {
            at_h: sample.at.micros() as f64 / 3.6e9,
            inference_gpus: sample.inference,
            training_gpus: sample.training,
            waiting: sample.waiting,
        };
        Self {
            order: training.order,
            tenants_kept: if training.tenants_even { "even" } else { "free" },
            loans: training.loans.name(),
            gpus: training.gpus,
            jobs: report.jobs,
            completion_h: report.completion_h,
            completion_p50_h: report.completion_p50_h,
            completion_p99_h: report.completion_p99_h,
            queueing_h: report.queueing_h,
            longest_wait_h: report.longest_wait_h,
            preemptions: report.preemptions,
            reclaims: report.reclaims,
            lost_gpu_h: report.lost_h,
            inference_short_gpu_h: report.short_h,
            jain: report.jain,
            worst_tenant: report.worst(),
            course: report.course.iter().map(holding).collect(),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Jain's index: 1 is even.
fn jain(ratios: &[f64]) -> f64 {
    let squares: f64 = ratios.iter().map(|ratio| ratio * ratio).sum();
    if squares <= 0.0 {
        return 1.0;
    }
    ratios.iter().sum::<f64>().powi(2) / (squares * ratios.len() as f64)
}

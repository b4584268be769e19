//! What came of training jobs.

use serde::Serialize;

use crate::{study::training::Training, training::Report};

/// What came of training jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingSummary {
    /// Who went first.
    pub order: &'static str,
    /// Whether tenants were kept even: `even` or `free`.
    pub tenants_kept: &'static str,
    /// How idle GPUs were lent.
    pub loans: &'static str,
    /// GPUs of its own.
    pub gpus: u32,
    /// Jobs that ended: all of them.
    pub jobs: usize,
    /// From submission to end, the mean.
    pub completion_h: f64,
    /// The median.
    pub completion_p50_h: f64,
    /// Exceeded by one in a hundred.
    pub completion_p99_h: f64,
    /// From submission to the first start, the mean.
    pub queueing_h: f64,
    /// The longest.
    pub longest_wait_h: f64,
    /// Times a job was stopped before its end.
    pub preemptions: u64,
    /// Times a job was stopped or shrunk for inference.
    pub reclaims: u64,
    /// Work done twice.
    pub lost_gpu_h: f64,
    /// What inference needed and did not have.
    pub inference_short_gpu_h: f64,
    /// Jain's index over what tenants had of what they deserved.
    pub jain: f64,
    /// The least that a tenant had of what it deserved.
    pub worst_tenant: f64,
    /// Who had what over time.
    pub course: Vec<Holding>,
}

/// Who had what around a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Holding {
    /// When.
    pub at_h: f64,
    /// GPUs that inference had of those that are lent; none if nothing is.
    pub inference_gpus: f64,
    /// GPUs that jobs had.
    pub training_gpus: f64,
    /// Jobs that waited.
    pub waiting: f64,
}

impl TrainingSummary {
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

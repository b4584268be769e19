//! What it took to follow the demand.

use serde::Serialize;

/// What it took to follow the demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FollowingSummary {
    /// GPUs with a replica, over time.
    pub gpu_hours: f64,
    /// What a fixed plan for every model's highest rate takes.
    pub static_peak_gpu_hours: f64,
    /// What a plan takes that is made anew in every interval, knows its rates, and moves in no time.
    pub clairvoyant_gpu_hours: f64,
    /// Replicas started.
    pub starts: u64,
    /// Replicas stopped.
    pub stops: u64,
    /// GPUs cut anew.
    pub cuts: u64,
    /// How it went.
    pub course: Vec<Stretch>,
}

/// The mean of a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// Its middle.
    pub at_s: f64,
    /// Requests per second that came.
    pub offered_rps: f64,
    /// GPUs with a replica.
    pub gpus: f64,
    /// GPUs of the one who knows.
    pub clairvoyant_gpus: f64,
}

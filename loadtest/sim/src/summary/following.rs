//! What it took to follow the demand.

use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FollowingSummary {
    pub gpu_hours: f64,
    /// What a fixed plan for every model's highest rate takes.
    pub static_peak_gpu_hours: f64,
    /// What a plan takes that is made anew in every interval, knows its rates, and moves in no time.
    pub clairvoyant_gpu_hours: f64,
    pub starts: u64,
    pub stops: u64,
    pub cuts: u64,
    pub course: Vec<Stretch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// Its middle.
    pub at_s: f64,
    pub offered_rps: f64,
    pub gpus: f64,
    /// GPUs of the one who knows.
    pub clairvoyant_gpus: f64,
}

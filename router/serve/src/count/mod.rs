//! What happened to a model's and a tenant's requests, counted as it happens.
//!
//! Control and the state document read these counts; the `metrics` module exposes them.

use std::time::Duration;

pub mod carried;
mod histograms;
pub mod latency;
mod model;
pub mod recent;
mod spec;
mod tenant;

pub use self::{
    model::{Closings, Lookups, ModelMetrics, Outcome, Reason, Refusals, Totals},
    spec::{
        BATCH_REQUESTS, BATCH_ROWS, BATCH_SECONDS, Kind, QUEUE_SECONDS, REQUEST_SECONDS, Spec, Unit,
    },
    tenant::{TenantMetrics, TenantTotals, Underway},
};

/// How often the samples of histograms are [drained](ModelMetrics::drain).
pub const DRAIN_EVERY: Duration = Duration::from_secs(1);

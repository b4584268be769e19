//! What happened to a model's and a tenant's requests, counted as it happens.
//!
//! Control and the state document read these counts; the `metrics` module exposes them.

mod histogram;
mod model;
pub mod recent;
mod tenant;

pub use self::{
    histogram::{Histogram, Reading, SCHEMA, Scale},
    model::{Closings, Lookups, ModelMetrics, Outcome, Reason, Refusals, Totals},
    tenant::{TenantMetrics, TenantTotals, Underway},
};

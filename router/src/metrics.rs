//! Every metric the router exports, declared once.
//!
//! A metric is added by adding its constant and naming it in [`ALL`]. Nothing else in the crate may
//! name one: `clippy.toml` forbids the raw macros elsewhere.
#![expect(clippy::disallowed_macros, reason = "this is the module the ban points to")]

mod model;

use std::time::Duration;

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

pub use self::model::{ModelMetrics, Outcome};

/// A metric's whole declaration.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The exported name.
    pub name: &'static str,
    /// Its unit, already part of `name`.
    pub unit: Unit,
    /// One line for `# HELP`.
    pub help: &'static str,
    /// What kind of series it is.
    pub kind: Kind,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// A distribution, with these upper bounds.
    Histogram(&'static [f64]),
}

const SECONDS: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
/// How often histograms are folded, so that they do not grow between scrapes.
pub const UPKEEP: Duration = Duration::from_secs(5);

const fn spec(name: &'static str, unit: Unit, kind: Kind, help: &'static str) -> Spec {
    Spec { name, unit, help, kind }
}

const REQUESTS: Spec = spec(
    "sluice_requests_total",
    Unit::Count,
    Kind::Counter,
    "Requests that ended, by model and how: served, refused, abandoned or failed.",
);
const REFUSALS: Spec = spec(
    "sluice_refusals_total",
    Unit::Count,
    Kind::Counter,
    "Requests refused, by model and reason.",
);
const WITHIN: Spec = spec(
    "sluice_requests_within_objective_total",
    Unit::Count,
    Kind::Counter,
    "Requests answered within their model's objective.",
);
const REQUEST_SECONDS: Spec = spec(
    "sluice_request_duration_seconds",
    Unit::Seconds,
    Kind::Histogram(SECONDS),
    "Time from arrival to answer of requests served.",
);
const QUEUE_SECONDS: Spec = spec(
    "sluice_queue_duration_seconds",
    Unit::Seconds,
    Kind::Histogram(SECONDS),
    "Time from arrival to dispatch.",
);
const WAITING: Spec =
    spec("sluice_queue_requests", Unit::Count, Kind::Gauge, "Requests waiting for a batch.");
const OLDEST: Spec = spec(
    "sluice_queue_oldest_age_seconds",
    Unit::Seconds,
    Kind::Gauge,
    "Age of the request that has waited longest.",
);
const BATCH_ROWS: Spec =
    spec("sluice_batch_requests", Unit::Count, Kind::Histogram(ROWS), "Rows per batch sent.");
const BATCHES: Spec = spec(
    "sluice_batches_total",
    Unit::Count,
    Kind::Counter,
    "Batches sent, by model and why they held no more.",
);
const LIMIT: Spec = spec(
    "sluice_batch_limit_requests",
    Unit::Count,
    Kind::Gauge,
    "The most rows the next batch on a slice may hold.",
);
const REPLICAS: Spec = spec(
    "sluice_replicas",
    Unit::Count,
    Kind::Gauge,
    "Replicas by model and state: starting, warming, ready or draining.",
);
const CACHE: Spec = spec(
    "sluice_cache_requests_total",
    Unit::Count,
    Kind::Counter,
    "Requests looked up in the prediction cache, by model and result: hit, joined or miss.",
);
const RELOAD_OK: Spec = spec(
    "sluice_config_last_reload_successful",
    Unit::Count,
    Kind::Gauge,
    "Whether the last attempt to load the configuration succeeded.",
);
const RELOAD_AT: Spec = spec(
    "sluice_config_last_reload_success_timestamp_seconds",
    Unit::Seconds,
    Kind::Gauge,
    "When the configuration in force was loaded.",
);
const BUILD: Spec =
    spec("sluice_build_info", Unit::Count, Kind::Gauge, "The version and revision running.");

/// Every metric, in the order shown in the documentation.
pub const ALL: &[Spec] = &[
    REQUESTS,
    REFUSALS,
    WITHIN,
    REQUEST_SECONDS,
    QUEUE_SECONDS,
    WAITING,
    OLDEST,
    BATCH_ROWS,
    BATCHES,
    LIMIT,
    REPLICAS,
    CACHE,
    RELOAD_OK,
    RELOAD_AT,
    BUILD,
];

/// Installs the recorder of this process, with every description and bucket list.
pub fn install(version: &str, revision: &str) -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for spec in ALL {
        if let Kind::Histogram(bounds) = spec.kind {
            builder =
                builder.set_buckets_for_metric(Matcher::Full(spec.name.to_owned()), bounds)?;
        }
    }
    let handle = builder.install_recorder()?;
    for Spec { name, unit, help, kind } in ALL.iter().copied() {
        match kind {
            Kind::Counter => describe_counter!(name, unit, help),
            Kind::Gauge => describe_gauge!(name, unit, help),
            Kind::Histogram(_) => describe_histogram!(name, unit, help),
        }
    }
    gauge!(BUILD.name, "version" => version.to_owned(), "revision" => revision.to_owned()).set(1.0);
    Ok(handle)
}

/// Records an attempt to load the configuration; `at_s` is the time since 1970.
pub fn reloaded(succeeded: bool, at_s: f64) {
    gauge!(RELOAD_OK.name).set(if succeeded { 1.0 } else { 0.0 });
    if succeeded {
        gauge!(RELOAD_AT.name).set(at_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_prometheus_rules() {
        for spec in ALL {
            let name = spec.name;
            let counter = matches!(spec.kind, Kind::Counter);
            assert!(name.starts_with("sluice_"), "{name}: wrong prefix");
            assert_eq!(name.ends_with("_total"), counter, "{name}: _total is for counters");
            assert!(!name.ends_with("_ms"), "{name}: use seconds");
            if spec.unit == Unit::Seconds {
                assert!(name.ends_with("_seconds"), "{name}: no unit in its name");
            }
            assert!(spec.help.ends_with('.'), "{name}: help is not a sentence");
        }
    }
}

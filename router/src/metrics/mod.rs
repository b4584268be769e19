//! Every metric the router exports, declared once.
//!
//! A metric is added by adding its constant, naming it in [`ALL`] and writing its family in
//! `families`. Events are counted as they happen, in [`count`](crate::count); everything else is
//! read off the [`State`](crate::state::State) when somebody asks, so that a slice or a tenant that
//! is gone leaves no series behind.
//!
//! The page is written here rather than by an exporter crate: those at hand export a histogram
//! with classic buckets or as a native one but never as both, and need a protobuf compiler to be
//! built.

use serve::count::Scale;

mod families;
mod fleet;
mod lead;
mod loans;
mod page;
mod placement;
mod protobuf;
mod text;

pub use self::{families::write, page::Format};

/// A metric's whole declaration.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The exported name.
    pub name: &'static str,
    /// Its unit, already part of `name`.
    pub unit: Unit,
    /// What kind of series it is.
    pub kind: Kind,
    /// The labels of each of its series.
    pub labels: &'static [&'static str],
    /// One line for `# HELP`.
    pub help: &'static str,
}

/// What a metric's numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, or nothing at all.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Parts of one.
    Ratio,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// A distribution on this scale.
    Histogram(Scale),
}

const fn spec(
    name: &'static str,
    unit: Unit,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Spec {
    Spec { name, unit, kind, labels, help }
}

const MODEL: &[&str] = &["model"];

const REQUESTS: Spec = spec(
    "sluice_requests_total",
    Unit::Count,
    Kind::Counter,
    &["model", "outcome"],
    "Requests that ended, by model and how: served, refused, abandoned or failed.",
);
const REFUSALS: Spec = spec(
    "sluice_refusals_total",
    Unit::Count,
    Kind::Counter,
    &["model", "reason"],
    "Requests refused, by model and reason.",
);
const WITHIN: Spec = spec(
    "sluice_requests_within_objective_total",
    Unit::Count,
    Kind::Counter,
    MODEL,
    "Requests answered within their model's objective.",
);
const OBJECTIVE: Spec = spec(
    "sluice_objective_seconds",
    Unit::Seconds,
    Kind::Gauge,
    MODEL,
    "The model's objective: the time from arrival to answer.",
);
const TARGET: Spec = spec(
    "sluice_objective_target_ratio",
    Unit::Ratio,
    Kind::Gauge,
    MODEL,
    "The share of requests that must be within the objective.",
);
const REQUEST_SECONDS: Spec = spec(
    "sluice_request_duration_seconds",
    Unit::Seconds,
    Kind::Histogram(Scale::Seconds),
    MODEL,
    "Time from arrival to answer of requests served.",
);
const QUEUE_SECONDS: Spec = spec(
    "sluice_queue_duration_seconds",
    Unit::Seconds,
    Kind::Histogram(Scale::Seconds),
    MODEL,
    "Time from arrival to dispatch.",
);
const WAITING: Spec =
    spec("sluice_queue_requests", Unit::Count, Kind::Gauge, MODEL, "Requests waiting for a batch.");
const OLDEST: Spec = spec(
    "sluice_queue_oldest_age_seconds",
    Unit::Seconds,
    Kind::Gauge,
    MODEL,
    "Age of the request that has waited longest.",
);
const IN_FLIGHT: Spec = spec(
    "sluice_requests_in_flight",
    Unit::Count,
    Kind::Gauge,
    MODEL,
    "Requests on replicas whose callers still wait.",
);
const BATCH_ROWS: Spec = spec(
    "sluice_batch_requests",
    Unit::Count,
    Kind::Histogram(Scale::Rows),
    MODEL,
    "Rows per batch sent.",
);
const BATCHES: Spec = spec(
    "sluice_batches_total",
    Unit::Count,
    Kind::Counter,
    &["model", "closed_by"],
    "Batches sent, by model and why they held no more.",
);
const LIMIT: Spec = spec(
    "sluice_batch_limit_requests",
    Unit::Count,
    Kind::Gauge,
    &["model", "slice"],
    "The most rows the next batch on a slice may hold.",
);
const REPLICAS: Spec = spec(
    "sluice_replicas",
    Unit::Count,
    Kind::Gauge,
    &["model", "state"],
    "Replicas by model and state: starting, warming, ready, draining or failed.",
);
const CACHE: Spec = spec(
    "sluice_cache_requests_total",
    Unit::Count,
    Kind::Counter,
    &["model", "result"],
    "Requests looked up in the prediction cache, by model and result: hit, joined or miss.",
);
const CACHE_BYTES: Spec = spec(
    "sluice_cache_bytes",
    Unit::Bytes,
    Kind::Gauge,
    MODEL,
    "Memory taken by remembered answers.",
);
const TENANT_REQUESTS: Spec = spec(
    "sluice_tenant_requests_total",
    Unit::Count,
    Kind::Counter,
    &["tenant", "outcome"],
    "Requests that ended, by tenant and how: served, refused, quota, abandoned or failed.",
);
const TENANT_ROWS: Spec = spec(
    "sluice_tenant_rows_total",
    Unit::Count,
    Kind::Counter,
    &["tenant"],
    "Rows asked for, by tenant; a tenant's rate is counted in them.",
);
const TENANT_RATE: Spec = spec(
    "sluice_tenant_rate_limit_rows_per_second",
    Unit::Count,
    Kind::Gauge,
    &["tenant"],
    "Rows a second a tenant may ask for, where it has a limit.",
);
const SPANS: Spec = spec(
    "sluice_trace_spans_total",
    Unit::Count,
    Kind::Counter,
    &["result"],
    "Spans of traced requests, by what became of them: exported or dropped.",
);
const RELOAD_OK: Spec = spec(
    "sluice_config_last_reload_successful",
    Unit::Count,
    Kind::Gauge,
    &[],
    "Whether the last attempt to load the configuration succeeded.",
);
const RELOAD_AT: Spec = spec(
    "sluice_config_last_reload_success_timestamp_seconds",
    Unit::Seconds,
    Kind::Gauge,
    &[],
    "When the configuration in force was loaded.",
);
const BUILD: Spec = spec(
    "sluice_build_info",
    Unit::Count,
    Kind::Gauge,
    &["version", "revision"],
    "The version and revision running.",
);

/// Every metric, in the order of the page and of the documentation.
pub const ALL: &[Spec] = &[
    REQUESTS,
    REFUSALS,
    WITHIN,
    OBJECTIVE,
    TARGET,
    REQUEST_SECONDS,
    QUEUE_SECONDS,
    WAITING,
    OLDEST,
    IN_FLIGHT,
    BATCH_ROWS,
    BATCHES,
    LIMIT,
    REPLICAS,
    CACHE,
    CACHE_BYTES,
    fleet::WORKERS,
    fleet::DRAINS,
    fleet::REPORT_AGE,
    fleet::SLICE_INFO,
    fleet::SLICE_BUSY,
    fleet::SLICE_MEMORY,
    fleet::RESTARTS,
    fleet::BATCH_SECONDS,
    fleet::GPU_PROBLEM,
    fleet::GPU_MEMORY,
    fleet::GPU_POWER,
    fleet::GPU_TEMPERATURE,
    fleet::GPU_ECC,
    placement::DEMAND,
    placement::CAPACITY,
    placement::GPUS,
    placement::MOVES,
    placement::REFUSED,
    placement::PINS,
    placement::INTERFERENCE,
    placement::ERROR,
    loans::JOBS,
    loans::LOANS,
    loans::RECLAIMS,
    loans::KILLS,
    loans::LOST,
    TENANT_REQUESTS,
    TENANT_ROWS,
    TENANT_RATE,
    lead::LEADER,
    lead::LED,
    lead::ETCD,
    lead::ETCD_WAIT,
    SPANS,
    RELOAD_OK,
    RELOAD_AT,
    BUILD,
];

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
            let unit = match spec.unit {
                Unit::Count => "",
                Unit::Seconds => "_seconds",
                Unit::Bytes => "_bytes",
                Unit::Ratio => "_ratio",
            };
            let base = name.trim_end_matches("_total");
            assert!(base.ends_with(unit), "{name}: no unit in its name");
            assert!(spec.help.ends_with('.'), "{name}: help is not a sentence");
        }
    }
}

//! Every metric the router exports, declared once.
//!
//! A metric is added by adding its constant, naming it in [`ALL`] and recording its series in
//! `families`. Requests are counted as they go by, in [`serve::count`], which also has the
//! histograms; everything else is read off the [`State`](crate::state::State) at a scrape.

mod carried;
mod families;
mod fleet;
mod lead;
mod loans;
mod page;
mod placement;

pub use self::{carried::Carried, families::write, page::CONTENT_TYPE};
use serve::count::{BATCH_REQUESTS, BATCH_ROWS, BATCH_SECONDS, QUEUE_SECONDS, REQUEST_SECONDS};
pub use serve::count::{Kind, Spec, Unit};

const MODEL: &[&str] = &["model"];

const REQUESTS: Spec = Spec::new(
    "sluice_requests_total",
    Unit::Count,
    Kind::Counter,
    &["model", "outcome"],
    "Requests that ended, by outcome: served, refused, abandoned or failed.",
);
const REFUSALS: Spec = Spec::new(
    "sluice_refusals_total",
    Unit::Count,
    Kind::Counter,
    &["model", "reason"],
    "Requests refused, by reason: overloaded, quota, too_late, deadline_too_short, no_replica or invalid.",
);
const WITHIN: Spec = Spec::new(
    "sluice_requests_within_objective_total",
    Unit::Count,
    Kind::Counter,
    MODEL,
    "Requests served within the model's objective.",
);
const LATE: Spec = Spec::new(
    "sluice_requests_late_total",
    Unit::Count,
    Kind::Counter,
    MODEL,
    "Requests served after the model's objective.",
);
const OBJECTIVE: Spec = Spec::new(
    "sluice_objective_seconds",
    Unit::Seconds,
    Kind::Gauge,
    MODEL,
    "The model's objective (SLO): time from arrival to response.",
);
const TARGET: Spec = Spec::new(
    "sluice_objective_target_ratio",
    Unit::Ratio,
    Kind::Gauge,
    MODEL,
    "Share of requests that must meet the objective.",
);
const WAITING: Spec = Spec::new(
    "sluice_queue_requests",
    Unit::Count,
    Kind::Gauge,
    MODEL,
    "Requests waiting for a batch.",
);
const OLDEST: Spec = Spec::new(
    "sluice_queue_oldest_age_seconds",
    Unit::Seconds,
    Kind::Gauge,
    MODEL,
    "Age of the request that has waited longest; near the objective, refusals follow.",
);
const IN_FLIGHT: Spec = Spec::new(
    "sluice_requests_in_flight",
    Unit::Count,
    Kind::Gauge,
    MODEL,
    "Requests on replicas whose clients still wait.",
);
const BATCHES: Spec = Spec::new(
    "sluice_batches_total",
    Unit::Count,
    Kind::Counter,
    &["model", "closed_by"],
    "Batches sent, by what closed them: full, deadline, idle_replica or shape.",
);
const LIMIT: Spec = Spec::new(
    "sluice_batch_limit_rows",
    Unit::Count,
    Kind::Gauge,
    &["model", "slice"],
    "Most rows of the next batch on a slice.",
);
const FORMER_LIMIT: Spec = LIMIT.formerly(
    "sluice_batch_limit_requests",
    "Deprecated, use sluice_batch_limit_rows. Most rows of the next batch on a slice.",
);
const REPLICAS: Spec = Spec::new(
    "sluice_replicas",
    Unit::Count,
    Kind::Gauge,
    &["model", "state"],
    "Replicas by state: starting, warming, ready, draining or failed. State asleep is 1 while the model is scaled to zero.",
);
const MODEL_READY: Spec = Spec::new(
    "sluice_model_ready",
    Unit::Count,
    Kind::Gauge,
    MODEL,
    "1 if the model has a ready replica, 0 if not; absent while it is asleep or unloaded.",
);
const CACHE: Spec = Spec::new(
    "sluice_cache_requests_total",
    Unit::Count,
    Kind::Counter,
    &["model", "result"],
    "Requests looked up in the response cache, by result: hit, joined or miss.",
);
const CACHE_BYTES: Spec = Spec::new(
    "sluice_cache_bytes",
    Unit::Bytes,
    Kind::Gauge,
    MODEL,
    "Memory of the response cache.",
);
const TENANT_REQUESTS: Spec = Spec::new(
    "sluice_tenant_requests_total",
    Unit::Count,
    Kind::Counter,
    &["tenant", "outcome"],
    "Requests that ended, by outcome: served, refused, quota, abandoned or failed.",
);
const TENANT_ROWS: Spec = Spec::new(
    "sluice_tenant_rows_total",
    Unit::Count,
    Kind::Counter,
    &["tenant"],
    "Rows requested; a tenant's rate limit counts rows.",
);
const TENANT_RATE: Spec = Spec::new(
    "sluice_tenant_rate_limit_rows_per_second",
    Unit::Count,
    Kind::Gauge,
    &["tenant"],
    "The tenant's rate limit, if it has one.",
);
const SPANS: Spec = Spec::new(
    "sluice_trace_spans_total",
    Unit::Count,
    Kind::Counter,
    &["result"],
    "Spans of traced requests, by result: exported or dropped.",
);
const LOG_DROPPED: Spec = Spec::new(
    "sluice_log_lines_dropped_total",
    Unit::Count,
    Kind::Counter,
    &[],
    "Log lines dropped because stderr was read too slowly.",
);
const RELOAD_OK: Spec = Spec::new(
    "sluice_config_last_reload_successful",
    Unit::Count,
    Kind::Gauge,
    &[],
    "1 if the last reload of the configuration succeeded, 0 if it was rejected.",
);
const RELOAD_AT: Spec = Spec::new(
    "sluice_config_last_reload_success_timestamp_seconds",
    Unit::Seconds,
    Kind::Gauge,
    &[],
    "When the configuration in force was loaded.",
);
const BUILD: Spec = Spec::new(
    "sluice_build_info",
    Unit::Count,
    Kind::Gauge,
    &["version", "revision"],
    "Always 1: the version and revision that run.",
);

/// Counters that workers report. They go on in their reports, whichever router process reads them.
const REPORTED: [Spec; 3] = [fleet::SLICE_BUSY, fleet::RESTARTS, fleet::GPU_ECC];

/// Every metric, in the order of the page and of the documentation.
pub const ALL: &[Spec] = &[
    REQUESTS,
    REFUSALS,
    WITHIN,
    LATE,
    OBJECTIVE,
    TARGET,
    REQUEST_SECONDS,
    QUEUE_SECONDS,
    WAITING,
    OLDEST,
    IN_FLIGHT,
    BATCH_ROWS,
    BATCH_REQUESTS,
    BATCHES,
    LIMIT,
    FORMER_LIMIT,
    REPLICAS,
    MODEL_READY,
    CACHE,
    CACHE_BYTES,
    fleet::WORKERS,
    fleet::DRAINS,
    fleet::REPORT_AGE,
    fleet::SLICE_INFO,
    fleet::SLICE_BUSY,
    fleet::SLICE_MEMORY,
    fleet::RESTARTS,
    BATCH_SECONDS,
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
    LOG_DROPPED,
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

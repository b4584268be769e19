//! What a metric is, and those that a model records as requests go by.

/// A metric's whole declaration. The page for scrapers and docs/reference/metrics.md follow from it.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub name: &'static str,
    /// Already part of `name`.
    pub unit: Unit,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// One line for `# HELP`.
    pub help: &'static str,
    /// The metric to use instead, if this one goes with the next release.
    pub replaced_by: Option<&'static str>,
}

impl Spec {
    pub const fn new(
        name: &'static str,
        unit: Unit,
        kind: Kind,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, unit, kind, labels, help, replaced_by: None }
    }

    /// The same metric under a former name.
    pub const fn formerly(self, name: &'static str, help: &'static str) -> Self {
        Self { name, help, replaced_by: Some(self.name), ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, or nothing at all.
    Count,
    Seconds,
    Bytes,
    Ratio,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Counter,
    Gauge,
    /// A distribution over buckets with these upper bounds, and one bucket above them.
    Histogram(&'static [f64]),
}

/// Bounds never depend on the configuration, so that routers' histograms add up.
const SECONDS: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

pub const REQUEST_SECONDS: Spec = Spec::new(
    "sluice_request_duration_seconds",
    Unit::Seconds,
    Kind::Histogram(SECONDS),
    &["model"],
    "Time from arrival to response of served requests.",
);
pub const QUEUE_SECONDS: Spec = Spec::new(
    "sluice_queue_duration_seconds",
    Unit::Seconds,
    Kind::Histogram(SECONDS),
    &["model"],
    "Time from arrival to dispatch.",
);
pub const BATCH_ROWS: Spec = Spec::new(
    "sluice_batch_rows",
    Unit::Count,
    Kind::Histogram(ROWS),
    &["model"],
    "Rows per batch sent.",
);
pub const BATCH_REQUESTS: Spec = BATCH_ROWS
    .formerly("sluice_batch_requests", "Deprecated, use sluice_batch_rows. Rows per batch sent.");
pub const BATCH_SECONDS: Spec = Spec::new(
    "sluice_worker_batch_duration_seconds",
    Unit::Seconds,
    Kind::Histogram(SECONDS),
    &["model", "profile"],
    "Time an executor worked on a batch.",
);

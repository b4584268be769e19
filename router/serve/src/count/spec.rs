//! What a metric is, and those that a model records as requests go by.

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
    /// A distribution over buckets with these upper bounds, and one bucket above them.
    Histogram(&'static [f64]),
}

/// Bounds never depend on the configuration, so that routers' histograms add up.
const SECONDS: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// How long requests took.
pub const REQUEST_SECONDS: Spec = Spec {
    name: "sluice_request_duration_seconds",
    unit: Unit::Seconds,
    kind: Kind::Histogram(SECONDS),
    labels: &["model"],
    help: "Time from arrival to answer of requests served.",
};
/// How long requests waited.
pub const QUEUE_SECONDS: Spec = Spec {
    name: "sluice_queue_duration_seconds",
    unit: Unit::Seconds,
    kind: Kind::Histogram(SECONDS),
    labels: &["model"],
    help: "Time from arrival to dispatch.",
};
/// How large batches were.
pub const BATCH_ROWS: Spec = Spec {
    name: "sluice_batch_requests",
    unit: Unit::Count,
    kind: Kind::Histogram(ROWS),
    labels: &["model"],
    help: "Rows per batch sent.",
};
/// How long executors worked on batches.
pub const BATCH_SECONDS: Spec = Spec {
    name: "sluice_worker_batch_duration_seconds",
    unit: Unit::Seconds,
    kind: Kind::Histogram(SECONDS),
    labels: &["model", "profile"],
    help: "Time an executor worked on a batch, by model and profile of its slice.",
};

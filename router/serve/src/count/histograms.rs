//! The distributions of one model.
//!
//! The exporter cannot drop a series while somebody holds its handle. So each model has a recorder of
//! its own, and its series go when the model goes. A recorder holds samples until it is rendered or
//! drained; see [`ModelMetrics::drain`](super::ModelMetrics::drain).

use metrics::{Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

use super::spec::{BATCH_ROWS, BATCH_SECONDS, Kind, QUEUE_SECONDS, REQUEST_SECONDS, Spec};

const ORIGIN: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

#[derive(Debug)]
pub(super) struct Histograms(PrometheusRecorder);

impl Histograms {
    pub(super) fn new(model: &str) -> Self {
        let mut builder = PrometheusBuilder::new().add_global_label("model", model);
        for spec in [REQUEST_SECONDS, QUEUE_SECONDS, BATCH_ROWS, BATCH_SECONDS] {
            let Kind::Histogram(bounds) = spec.kind else { continue };
            builder = builder
                .set_buckets_for_metric(Matcher::Full(spec.name.to_owned()), bounds)
                .expect("every histogram is declared with bounds");
        }
        Self(builder.build_recorder())
    }

    /// The series of `spec` with these labels beside the model.
    pub(super) fn bind(&self, spec: &Spec, labels: Vec<Label>) -> Histogram {
        self.0.register_histogram(&Key::from_parts(spec.name, labels), &ORIGIN)
    }

    pub(super) fn drain(&self) {
        self.0.handle().run_upkeep();
    }

    pub(super) fn render(&self) -> String {
        self.0.handle().render()
    }
}

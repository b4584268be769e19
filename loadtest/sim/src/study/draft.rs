//! The scenario file as written, with the place of every value that is checked.

use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Draft {
    pub(super) about: String,
    pub(super) detail: Option<Spanned<String>>,
    pub(super) duration_s: Spanned<f64>,
    pub(super) warmup_s: Option<Spanned<f64>>,
    pub(super) interval_s: Option<Spanned<f64>>,
    pub(super) noise: Option<Spanned<f64>>,
    pub(super) network_ms: Option<Spanned<f64>>,
    pub(super) executor_ms: Option<Spanned<f64>>,
    pub(super) seed: Option<u64>,
    pub(super) placement: Option<Spanned<String>>,
    pub(super) share_slices: Option<bool>,
    pub(super) random_faults: Option<Spanned<u32>>,
    #[serde(default, rename = "gpu")]
    pub(super) gpus: Vec<Gpu>,
    #[serde(default, rename = "model")]
    pub(super) models: Vec<Model>,
    #[serde(default, rename = "stream")]
    pub(super) streams: Vec<Stream>,
    #[serde(default, rename = "fault")]
    pub(super) faults: Vec<Fault>,
    pub(super) training: Option<Training>,
    pub(super) delays: Option<Delays>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gpu {
    pub(super) kind: Spanned<String>,
    pub(super) count: Option<Spanned<u32>>,
    pub(super) geometry: Option<Spanned<Vec<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub(super) name: Spanned<String>,
    pub(super) profile_csv: Spanned<String>,
    /// The GPU it was measured on; absent, the measurements hold for each as they stand.
    pub(super) measured_on: Option<Spanned<String>>,
    pub(super) slo_ms: Spanned<f64>,
    /// How long after its arrival an answer is still wanted; absent, the objective.
    pub(super) timeout_ms: Option<Spanned<f64>>,
    pub(super) slo_target: Option<Spanned<f64>>,
    pub(super) max_batch: Option<Spanned<u32>>,
    pub(super) batching: Option<Spanned<String>>,
    pub(super) memory_mib: Option<Spanned<u64>>,
    pub(super) replicas: Option<Spanned<u32>>,
    pub(super) demand_rps: Option<Spanned<f64>>,
    pub(super) load: Option<Load>,
    /// As many models alike, with a number after each name.
    pub(super) copies: Option<Spanned<u32>>,
}

/// Parts of what the slice has its share of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    pub(super) power: Spanned<f64>,
    pub(super) bandwidth: Spanned<f64>,
    pub(super) pcie: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    pub(super) model: Spanned<String>,
    pub(super) rate_rps: Option<Spanned<f64>>,
    pub(super) arrivals: Option<Spanned<String>>,
    pub(super) rates_csv: Option<Spanned<String>>,
    pub(super) speed: Option<Spanned<f64>>,
    pub(super) tenant: Option<String>,
    pub(super) weight: Option<Spanned<f64>>,
    pub(super) class: Option<Spanned<String>>,
    pub(super) shapes: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    pub(super) kind: Spanned<String>,
    pub(super) at_s: Spanned<f64>,
    pub(super) for_s: Spanned<f64>,
    pub(super) gpu: Option<Spanned<usize>>,
    pub(super) factor: Option<Spanned<f64>>,
    pub(super) by_ms: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Training {
    pub(super) trace_csv: Spanned<String>,
    pub(super) from_s: Option<Spanned<f64>>,
    pub(super) until_s: Option<Spanned<f64>>,
    pub(super) gpus: Spanned<u32>,
    pub(super) order: Option<Spanned<String>>,
    pub(super) tenants: Option<Spanned<String>>,
    pub(super) loans: Option<Spanned<String>>,
    pub(super) elastic: Option<bool>,
    pub(super) reserve_gpus: Option<Spanned<u32>>,
    pub(super) round_s: Option<Spanned<f64>>,
    pub(super) checkpoint_every_s: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delays {
    pub(super) create_ms: Option<Spanned<u64>>,
    pub(super) destroy_ms: Option<Spanned<u64>>,
    pub(super) start_ms: Option<Spanned<u64>>,
    pub(super) load_mib_per_s: Option<Spanned<f64>>,
}

//! The metrics of workers, their GPUs and slices, and their families.

use super::{
    Kind, Spec, Unit,
    page::{count, number},
};
use crate::{
    progress::DrainPhase,
    state::{GpuState, Memory, Presence, SliceState, State},
};

pub(super) const WORKERS: Spec = Spec::new(
    "sluice_workers",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Workers by state: connected, silent or away.",
);
pub(super) const DRAINS: Spec = Spec::new(
    "sluice_worker_drains",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Workers that operators drained, by state: draining or drained.",
);
pub(super) const REPORT_AGE: Spec = Spec::new(
    "sluice_worker_report_age_seconds",
    Unit::Seconds,
    Kind::Gauge,
    &["worker"],
    "Time since the worker's last report; it reports every second.",
);
pub(super) const SLICE_INFO: Spec = Spec::new(
    "sluice_worker_slice_info",
    Unit::Count,
    Kind::Gauge,
    &["gpu", "slice", "profile", "uuid", "source"],
    "Always 1: the device behind a slice, which changes with every reshape.",
);
pub(super) const SLICE_BUSY: Spec = Spec::new(
    "sluice_worker_slice_busy_seconds_total",
    Unit::Seconds,
    Kind::Counter,
    &["gpu", "slice", "profile"],
    "Time a slice ran batches, measured by its executors; its rate is the utilization.",
);
pub(super) const SLICE_MEMORY: Spec = Spec::new(
    "sluice_worker_slice_memory_bytes",
    Unit::Bytes,
    Kind::Gauge,
    &["gpu", "slice", "kind"],
    "Memory of a slice: total, and used by its replicas as far as they report it.",
);
pub(super) const RESTARTS: Spec = Spec::new(
    "sluice_worker_executor_restarts_total",
    Unit::Count,
    Kind::Counter,
    &["gpu", "slice"],
    "Restarts of a slice's executors.",
);
pub(super) const GPU_PROBLEM: Spec = Spec::new(
    "sluice_worker_gpu_problem",
    Unit::Count,
    Kind::Gauge,
    &["gpu"],
    "1 if the GPU cannot be read or lacks its geometry; sluice status says why.",
);
pub(super) const GPU_MEMORY: Spec = Spec::new(
    "sluice_worker_gpu_memory_bytes",
    Unit::Bytes,
    Kind::Gauge,
    &["gpu", "kind", "source"],
    "Memory of a GPU, total and used, if it reports it.",
);
pub(super) const GPU_POWER: Spec = Spec::new(
    "sluice_worker_gpu_power_watts",
    Unit::Count,
    Kind::Gauge,
    &["gpu", "source"],
    "Power draw of a GPU, if it reports it.",
);
pub(super) const GPU_TEMPERATURE: Spec = Spec::new(
    "sluice_worker_gpu_temperature_celsius",
    Unit::Count,
    Kind::Gauge,
    &["gpu", "source"],
    "Temperature of a GPU, if it reports it.",
);
pub(super) const GPU_ECC: Spec = Spec::new(
    "sluice_worker_gpu_memory_errors_total",
    Unit::Count,
    Kind::Counter,
    &["gpu", "kind"],
    "Memory errors of a GPU since its driver was loaded, corrected and uncorrected, if it reports them.",
);

pub(super) fn record(state: &State) {
    workers(state);
    for gpu in state.gpus() {
        gpu.slices.iter().for_each(|slice| self::slice(gpu, slice));
        self::gpu(gpu);
    }
}

fn workers(state: &State) {
    for (name, wanted) in Presence::ALL {
        let workers = state.workers.iter().filter(|worker| worker.state == wanted).count();
        number(&WORKERS, [name], workers as f64);
    }
    for (name, wanted) in DrainPhase::ALL {
        let drains = state.workers.iter().filter_map(|worker| worker.drain.as_ref());
        number(&DRAINS, [name], drains.filter(|drain| drain.state == wanted).count() as f64);
    }
    for worker in &state.workers {
        number(&REPORT_AGE, [&worker.name], worker.silent_s);
    }
}

fn slice(on: &GpuState, slice: &SliceState) {
    let gpu = on.gpu.as_str();
    let (name, profile) = (slice.slice.as_str(), slice.profile.as_str());
    if let Some(uuid) = &slice.uuid {
        number(&SLICE_INFO, [gpu, name, profile, uuid, on.source_word()], 1.0);
    }
    number(&SLICE_BUSY, [gpu, name, profile], slice.busy_s());
    number(&SLICE_MEMORY, [gpu, name, "used"], slice.used_bytes() as f64);
    if let Some(bytes) = slice.memory_bytes {
        number(&SLICE_MEMORY, [gpu, name, "total"], bytes as f64);
    }
    let restarts = slice.lanes.iter().map(|lane| u64::from(lane.restarts)).sum();
    count(&RESTARTS, [gpu, name], restarts);
}

fn gpu(gpu: &GpuState) {
    let (name, source) = (gpu.gpu.as_str(), gpu.source_word());
    number(&GPU_PROBLEM, [name], gpu.problem.is_some().into());
    if let Some(Memory { total_bytes, used_bytes }) = gpu.memory {
        number(&GPU_MEMORY, [name, "total", source], total_bytes as f64);
        number(&GPU_MEMORY, [name, "used", source], used_bytes as f64);
    }
    if let Some(watts) = gpu.power_w {
        number(&GPU_POWER, [name, source], watts);
    }
    if let Some(celsius) = gpu.temperature_c {
        number(&GPU_TEMPERATURE, [name, source], celsius.into());
    }
    if let Some((corrected, uncorrected)) = gpu.ecc {
        count(&GPU_ECC, [name, "corrected"], corrected);
        count(&GPU_ECC, [name, "uncorrected"], uncorrected);
    }
}

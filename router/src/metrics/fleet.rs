//! The metrics of workers, their GPUs and slices, and their families.

use std::sync::Arc;

use serve::count::{Histogram, ModelMetrics, Scale};

use super::{
    Kind, Spec, Unit,
    page::{Page, Sample},
    spec,
};
use crate::{
    place::DrainPhase,
    state::{GpuState, Memory, Presence, SliceState, State},
};

pub(super) const WORKERS: Spec = spec(
    "sluice_workers",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Workers known, by whether they speak: connected, silent or away.",
);
pub(super) const DRAINS: Spec = spec(
    "sluice_worker_drains",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Workers that operators have drained: draining while something is on them, then drained.",
);
pub(super) const REPORT_AGE: Spec = spec(
    "sluice_worker_report_age_seconds",
    Unit::Seconds,
    Kind::Gauge,
    &["worker"],
    "Time since a worker's last report; it reports each second.",
);
pub(super) const SLICE_INFO: Spec = spec(
    "sluice_worker_slice_info",
    Unit::Count,
    Kind::Gauge,
    &["gpu", "slice", "profile", "uuid"],
    "Always 1: the device behind a slice, which is another after every recut.",
);
pub(super) const SLICE_BUSY: Spec = spec(
    "sluice_worker_slice_busy_seconds_total",
    Unit::Seconds,
    Kind::Counter,
    &["gpu", "slice", "profile"],
    "Time a slice's processes ran batches, measured by themselves.",
);
pub(super) const SLICE_MEMORY: Spec = spec(
    "sluice_worker_slice_memory_bytes",
    Unit::Bytes,
    Kind::Gauge,
    &["gpu", "slice", "kind"],
    "Memory of a slice, total, and used by its replicas as far as they can tell.",
);
pub(super) const RESTARTS: Spec = spec(
    "sluice_worker_executor_restarts_total",
    Unit::Count,
    Kind::Counter,
    &["gpu", "slice"],
    "How often a slice's processes were started again.",
);
pub(super) const BATCH_SECONDS: Spec = spec(
    "sluice_worker_batch_duration_seconds",
    Unit::Seconds,
    Kind::Histogram(Scale::Seconds),
    &["model", "profile"],
    "Time an executor worked on a batch, by model and profile of its slice.",
);
pub(super) const GPU_PROBLEM: Spec = spec(
    "sluice_worker_gpu_problem",
    Unit::Count,
    Kind::Gauge,
    &["gpu"],
    "1 if a GPU cannot be read or is not as wanted, else 0.",
);
pub(super) const GPU_MEMORY: Spec = spec(
    "sluice_worker_gpu_memory_bytes",
    Unit::Bytes,
    Kind::Gauge,
    &["gpu", "kind"],
    "Memory of a GPU, total and used, where it says.",
);
pub(super) const GPU_POWER: Spec = spec(
    "sluice_worker_gpu_power_watts",
    Unit::Count,
    Kind::Gauge,
    &["gpu"],
    "Power a GPU draws, where it says.",
);
pub(super) const GPU_TEMPERATURE: Spec = spec(
    "sluice_worker_gpu_temperature_celsius",
    Unit::Count,
    Kind::Gauge,
    &["gpu"],
    "Temperature of a GPU, where it says.",
);
pub(super) const GPU_ECC: Spec = spec(
    "sluice_worker_gpu_memory_errors_total",
    Unit::Count,
    Kind::Counter,
    &["gpu", "kind"],
    "Errors of a GPU's memory since its driver was loaded, corrected and uncorrected, where it says.",
);

/// Writes them.
pub(super) fn write(page: &mut Page, state: &State, counted: &[&ModelMetrics]) {
    workers(page, state);
    slices(page, state);
    batches(page, state, counted);
    gpus(page, state);
}

fn workers(page: &mut Page, state: &State) {
    let count = |wanted: Presence| state.workers.iter().filter(|one| one.state == wanted).count();
    let counts = Presence::ALL.map(|(name, wanted)| (name, count(wanted) as u64));
    page.family(&WORKERS, counts.map(|(name, count)| Sample::count([name], count)));
    let drains = DrainPhase::ALL.map(|(name, wanted)| {
        let there = state.workers.iter().filter_map(|one| one.drain.as_ref());
        Sample::count([name], there.filter(|drain| drain.state == wanted).count() as u64)
    });
    page.family(&DRAINS, drains);
    let age = state.workers.iter().map(|one| Sample::number([&*one.name], one.silent_s));
    page.family(&REPORT_AGE, age);
}

/// Every slice with its GPU's name.
fn pairs(state: &State) -> impl Iterator<Item = (&str, &SliceState)> {
    state.gpus().flat_map(|gpu| gpu.slices.iter().map(|slice| (&*gpu.gpu, slice)))
}

fn slices(page: &mut Page, state: &State) {
    page.family(
        &SLICE_INFO,
        pairs(state).filter_map(|(gpu, slice)| {
            let uuid = slice.uuid.as_deref()?;
            Some(Sample::count([gpu, &slice.slice, &slice.profile, uuid], 1))
        }),
    );
    page.family(
        &SLICE_BUSY,
        pairs(state).map(|(gpu, slice)| {
            Sample::number([gpu, &slice.slice, &slice.profile], slice.busy_s())
        }),
    );
    page.family(
        &SLICE_MEMORY,
        pairs(state).flat_map(|(gpu, slice)| {
            let total = slice.memory_bytes.map(|bytes| ("total", bytes));
            let both = [("used", slice.used_bytes())].into_iter().chain(total);
            both.map(move |(kind, bytes)| Sample::count([gpu, &slice.slice, kind], bytes))
        }),
    );
    page.family(
        &RESTARTS,
        pairs(state).map(|(gpu, slice)| {
            let restarts = slice.lanes.iter().map(|lane| u64::from(lane.restarts)).sum();
            Sample::count([gpu, &slice.slice], restarts)
        }),
    );
}

fn batches(page: &mut Page, state: &State, counted: &[&ModelMetrics]) {
    let times = |counts: &&ModelMetrics| -> Vec<(String, Arc<Histogram>)> {
        let times = counts.batch_times.lock();
        times.iter().map(|(profile, time)| (profile.clone(), Arc::clone(time))).collect()
    };
    let all: Vec<Vec<(String, Arc<Histogram>)>> = counted.iter().map(times).collect();
    let samples = state.models.iter().zip(&all).flat_map(|(model, times)| {
        times.iter().map(|(profile, time)| Sample::distribution([&*model.name, profile], time))
    });
    page.family(&BATCH_SECONDS, samples);
}

fn gpus(page: &mut Page, state: &State) {
    page.family(&GPU_PROBLEM, each(state, |gpu| Some(gpu.problem.is_some().into())));
    page.family(
        &GPU_MEMORY,
        both(state, |gpu| {
            let Memory { total_bytes, used_bytes } = gpu.memory?;
            Some([("total", total_bytes), ("used", used_bytes)])
        }),
    );
    page.family(&GPU_POWER, each(state, |gpu| gpu.power_w));
    page.family(&GPU_TEMPERATURE, each(state, |gpu| gpu.temperature_c.map(f64::from)));
    page.family(
        &GPU_ECC,
        both(state, |gpu| {
            let (corrected, uncorrected) = gpu.ecc?;
            Some([("corrected", corrected), ("uncorrected", uncorrected)])
        }),
    );
}

/// One series for each GPU that says it.
fn each(
    state: &State,
    value: impl Fn(&GpuState) -> Option<f64>,
) -> impl Iterator<Item = Sample<'_>> {
    state.gpus().filter_map(move |gpu| Some(Sample::number([&*gpu.gpu], value(gpu)?)))
}

/// Two series for each GPU that says them.
fn both(
    state: &State,
    values: impl Fn(&GpuState) -> Option<[(&'static str, u64); 2]>,
) -> impl Iterator<Item = Sample<'_>> {
    let pairs = state.gpus().filter_map(move |gpu| {
        let sample = |(kind, count)| Sample::count([&*gpu.gpu, kind], count);
        Some(values(gpu)?.map(sample))
    });
    pairs.flatten()
}

//! The families of workers, their GPUs and slices.

use std::sync::Arc;

use super::{
    BATCH_SECONDS, GPU_ECC, GPU_MEMORY, GPU_POWER, GPU_PROBLEM, GPU_TEMPERATURE, Histogram,
    ModelMetrics, REPORT_AGE, RESTARTS, SLICE_BUSY, SLICE_INFO, SLICE_MEMORY, WORKERS,
    page::{Page, Sample},
};
use crate::state::{GpuState, Memory, Presence, SliceState, State};

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

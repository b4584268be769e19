//! Loading a model and running it until it is warm.
//!
//! A batch size that was never run is not warm, so every size up to the largest is run, by powers
//! of two, at every shape that is asked for. What the runs took seeds the router's latency model.
//! The first run of a size pays for what later ones find done, so it is left out where there is time
//! for more. A model of free dimensions of which nobody says how large they are is run by nothing: it
//! is ready cold, and learns from requests.

mod npz;
mod sample;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::Duration,
};

use protocol::{ModelSpec, ReadyReplica, WarmPoint, WarmShape};

use self::sample::{Sample, SampleError, samples};
use super::{
    lane::Lane,
    replica::{Ready, said},
};
use crate::{
    clock,
    engine::{self, Engine, RunError, Surroundings},
    memory,
};

/// The time for runs beyond one of each size, shared by the shapes.
const BUDGET: Duration = Duration::from_secs(2);

/// Runs of a size beyond the first.
const REPEATS: usize = 3;

/// A warm model, and what to tell of it; where it is reached is the executor's to add.
pub(super) struct Warm {
    pub(super) engine: Box<dyn Engine>,
    pub(super) ready: Ready,
    pub(super) told: ReadyReplica,
}

pub(super) fn bring_up(
    spec: &ModelSpec,
    around: &Surroundings,
    lane: &Lane,
    warming: &mut dyn FnMut(u32),
) -> Result<Warm, String> {
    let started = clock::now();
    let before = resident_bytes();
    let mut engine = careful(|| engine::load(spec, around))?;
    let load_us = clock::micros(clock::now() - started);
    for reason in engine.left_out() {
        tracing::warn!(model = spec.name, reason, "model output left out");
    }
    let signature = engine.signature().clone();
    let max_batch = if signature.batches() { spec.max_batch.max(1) } else { 1 };
    let shapes = careful(|| warm(engine.as_mut(), spec, max_batch, lane, warming))?;
    let told = ReadyReplica {
        address: String::new(),
        token: String::new(),
        signature: signature.shapes(),
        platform: engine.platform().to_owned(),
        max_batch,
        warmup: shapes.first().map(|(_, points)| points.clone()).unwrap_or_default(),
        load_us,
        memory_bytes: engine.memory_bytes().max(resident_bytes().saturating_sub(before)),
        shapes: if signature.has_free_dimensions() { by_shape(&shapes) } else { Vec::new() },
        runtime: engine.runtime(),
    };
    Ok(Warm { engine, ready: Ready { signature, max_batch }, told })
}

/// Loads a model and runs it once at every shape it would be warmed at, a row each.
pub(crate) fn try_out(spec: &ModelSpec, around: &Surroundings) -> Result<Box<dyn Engine>, String> {
    let mut engine = careful(|| engine::load(spec, around))?;
    careful(|| {
        for sample in samples(engine.signature(), spec)? {
            let (batch, body) = sample.batch(1)?;
            let done = engine.run(&batch, &body);
            done.map_err(|source| WarmError::Run { rows: 1, source })?;
        }
        Ok::<(), WarmError>(())
    })?;
    Ok(engine)
}

fn by_shape(shapes: &[(Sample, Vec<WarmPoint>)]) -> Vec<WarmShape> {
    let point = |point: &WarmPoint| {
        let mut runs = point.compute_us.clone();
        runs.sort_unstable();
        Some((point.batch, *runs.get(runs.len() / 2)?))
    };
    let shape = |(sample, points): &(Sample, Vec<WarmPoint>)| WarmShape {
        inputs: sample.inputs(),
        points: points.iter().filter_map(point).collect(),
    };
    shapes.iter().map(shape).collect()
}

/// A model's file may make its reader panic; that must not end the process.
fn careful<T, E: ToString>(load: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(load)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(said(&*panic)),
    }
}

#[derive(Debug, thiserror::Error)]
enum WarmError {
    #[error("warm-up with a batch of {rows}: {source}")]
    Run { rows: u32, source: RunError },
    #[error(transparent)]
    Sample(#[from] SampleError),
}

fn warm(
    engine: &mut dyn Engine,
    spec: &ModelSpec,
    max_batch: u32,
    lane: &Lane,
    warming: &mut dyn FnMut(u32),
) -> Result<Vec<(Sample, Vec<WarmPoint>)>, WarmError> {
    let samples = samples(engine.signature(), spec)?;
    if samples.is_empty() {
        tracing::info!(
            model = spec.name,
            "model not warmed: its dimensions are free, and warmup does not give them"
        );
    }
    let budget = BUDGET / u32::try_from(samples.len().max(1)).unwrap_or(u32::MAX);
    let mut shapes = Vec::with_capacity(samples.len());
    for sample in samples {
        let mut points = Vec::new();
        let mut left = budget;
        for rows in sizes(max_batch) {
            warming(rows);
            let compute_us = warm_size(engine, (&sample, rows), lane, &mut left)?;
            points.push(WarmPoint { batch: rows, compute_us });
        }
        shapes.push((sample, points));
    }
    Ok(shapes)
}

fn warm_size(
    engine: &mut dyn Engine,
    (sample, rows): (&Sample, u32),
    lane: &Lane,
    left: &mut Duration,
) -> Result<Vec<u64>, WarmError> {
    let known = engine.known_latency(rows);
    if let Some(latency) = known
        && latency > *left
    {
        return Ok(vec![clock::micros(latency)]);
    }
    let (batch, body) = sample.batch(rows)?;
    let mut run = || {
        let done = lane.turn(|| engine.run(&batch, &body));
        let done = done.map_err(|source| WarmError::Run { rows, source })?;
        *left = left.saturating_sub(done.input + done.compute + done.output);
        Ok::<_, WarmError>((clock::micros(done.compute), !left.is_zero()))
    };
    let (first, mut time_left) = run()?;
    let mut repeats = Vec::new();
    while known.is_none() && time_left && repeats.len() < REPEATS {
        let (compute_us, left) = run()?;
        repeats.push(compute_us);
        time_left = left;
    }
    Ok(if repeats.is_empty() { vec![first] } else { repeats })
}

fn sizes(max_batch: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> =
        (0..32).map(|power| 1_u32 << power).take_while(|size| *size < max_batch).collect();
    sizes.push(max_batch);
    sizes
}

fn resident_bytes() -> u64 {
    memory::resident_bytes(Path::new("/proc/self")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn spec(curve: &[(u32, f64)], shape: &[i64]) -> ModelSpec {
        let shape = |name: &str| protocol::TensorShape {
            name: name.into(),
            datatype: "FP32".into(),
            shape: shape.to_vec(),
        };
        let engine = protocol::Engine::Synthetic {
            curve: curve.to_vec(),
            noise: 0.0,
            inputs: vec![shape("x")],
            outputs: vec![shape("y")],
        };
        ModelSpec {
            name: "m".into(),
            version: "1".into(),
            engine,
            max_batch: 8,
            memory_mib: 0,
            threads: 1,
            device: None,
            warmup: Vec::new(),
            warmup_file: None,
            content: None,
        }
    }

    type Shapes = Vec<(Sample, Vec<WarmPoint>)>;

    fn warmed(spec: &ModelSpec, max_batch: u32, told: &mut Vec<u32>) -> Result<Shapes, WarmError> {
        let mut engine = engine::load(spec, &Surroundings::bare()).unwrap();
        warm(engine.as_mut(), spec, max_batch, &Lane::default(), &mut |rows| told.push(rows))
    }

    #[test]
    fn every_power_of_two_and_the_largest_size_are_warmed() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(8), [1, 2, 4, 8]);
        assert_eq!(sizes(10), [1, 2, 4, 8, 10]);
    }

    #[test]
    fn a_model_whose_latency_is_known_is_not_run_beyond_the_budget() {
        let mut told = Vec::new();
        let shapes = warmed(&spec(&[(1, 3_600_000.0)], &[-1, 2]), 4, &mut told).unwrap();
        assert_eq!(told, [1, 2, 4]);
        let longest = 600_000_000;
        let points = &shapes[0].1;
        assert!(points.iter().all(|point| point.compute_us == [longest]), "{points:?}");
    }

    #[test]
    fn warming_measures_what_the_model_takes() {
        let shapes = warmed(&spec(&[(1, 0.5), (2, 1.0)], &[-1, 2]), 2, &mut Vec::new()).unwrap();
        let points = &shapes[0].1;
        assert_eq!(points.iter().map(|point| point.batch).collect::<Vec<_>>(), [1, 2]);
        assert!(points[0].compute_us[0] >= 500, "{points:?}");
        assert!(points[1].compute_us[0] >= 1_000, "{points:?}");
    }

    #[test]
    fn free_dimensions_are_warmed_at_each_shape_given() {
        let free = spec(&[(1, 0.0)], &[-1, -1]);
        assert!(warmed(&free, 4, &mut Vec::new()).unwrap().is_empty(), "nobody says how large");
        let shape = |size| BTreeMap::from([("x".to_owned(), vec![size])]);
        let given = ModelSpec { warmup: vec![shape(2), shape(64)], ..free };
        let mut told = Vec::new();
        let shapes = by_shape(&warmed(&given, 2, &mut told).unwrap());
        assert_eq!(told, [1, 2, 1, 2]);
        let found: Vec<_> = shapes.iter().map(|one| (&one.inputs, one.points.len())).collect();
        assert_eq!(found, [(&shape(2), 2), (&shape(64), 2)]);
    }

    #[test]
    fn a_shape_the_model_does_not_take_fails_the_warm_up() {
        let shape = BTreeMap::from([("x".to_owned(), vec![3])]);
        let given = ModelSpec { warmup: vec![shape], ..spec(&[(1, 0.0)], &[-1, 2]) };
        let error = warmed(&given, 1, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with("warmup gives [3] for input \"x\""), "{error}");
    }
}

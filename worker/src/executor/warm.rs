//! Loading a model and running it until it is warm.
//!
//! A batch size that was never run is not warm, so every size up to the largest is run, by powers
//! of two. What the runs took seeds the router's latency model. The first run of a size pays for
//! what later ones find done, so it is left out where there is time for more.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::Duration,
};

use bytes::Bytes;
use protocol::{Batch, MAX_BODY, ModelSpec, Part, ReadyReplica, WarmPoint};

use super::{
    lane::Lane,
    replica::{Ready, said},
};
use crate::{
    clock,
    engine::{self, Engine},
    memory,
    signature::Signature,
};

/// The time for runs beyond one of each size.
const BUDGET: Duration = Duration::from_secs(2);

/// Runs of a size beyond the first.
const REPEATS: usize = 3;

/// The size, while warming, of a dimension that takes any.
const ANY: u64 = 16;

/// A warm model, and what to tell of it; where it is reached is the executor's to add.
pub(super) struct Warm {
    pub(super) engine: Box<dyn Engine>,
    pub(super) ready: Ready,
    pub(super) told: ReadyReplica,
}

pub(super) fn bring_up(
    spec: &ModelSpec,
    program: &Path,
    lane: &Lane,
    warming: &mut dyn FnMut(u32),
) -> Result<Warm, String> {
    let started = clock::now();
    let before = resident_bytes();
    let mut engine = careful(|| engine::load(spec, program))?;
    let load_us = clock::micros(clock::now() - started);
    let signature = engine.signature().clone();
    let max_batch = if signature.batches() { spec.max_batch.max(1) } else { 1 };
    let warmup = careful(|| warm(engine.as_mut(), max_batch, lane, warming))?;
    let told = ReadyReplica {
        address: String::new(),
        token: String::new(),
        signature: signature.shapes(),
        platform: engine.platform().to_owned(),
        max_batch,
        warmup,
        load_us,
        memory_bytes: engine.memory_bytes().max(resident_bytes().saturating_sub(before)),
    };
    Ok(Warm { engine, ready: Ready { signature, max_batch }, told })
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
    Run { rows: u32, source: engine::RunError },
    #[error("a batch of {rows} has {bytes} bytes, at most {MAX_BODY} are allowed")]
    TooLarge { rows: u32, bytes: u64 },
}

fn warm(
    engine: &mut dyn Engine,
    max_batch: u32,
    lane: &Lane,
    warming: &mut dyn FnMut(u32),
) -> Result<Vec<WarmPoint>, WarmError> {
    let free = engine.signature().has_free_dimensions();
    let mut points = Vec::new();
    let mut spent = Duration::ZERO;
    for rows in sizes(max_batch) {
        warming(rows);
        match warm_size(engine, rows, lane, &mut spent) {
            Ok(compute_us) => points.push(WarmPoint { batch: rows, compute_us }),
            // The sizes of its free dimensions were a guess, and the model may not take them.
            Err(error) if free => {
                tracing::warn!(%error, "warm-up ended early: the model has dimensions of unknown size");
                return Ok(points);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(points)
}

/// Runs one size, and returns microseconds in the model.
fn warm_size(
    engine: &mut dyn Engine,
    rows: u32,
    lane: &Lane,
    spent: &mut Duration,
) -> Result<Vec<u64>, WarmError> {
    let known = engine.known_latency(rows);
    if let Some(latency) = known
        && *spent + latency > BUDGET
    {
        return Ok(vec![clock::micros(latency)]);
    }
    let (batch, body) = batch(engine.signature(), rows)?;
    let mut run = || {
        let done = lane.turn(|| engine.run(&batch, &body));
        let done = done.map_err(|source| WarmError::Run { rows, source })?;
        *spent += done.input + done.compute + done.output;
        Ok((clock::micros(done.compute), *spent < BUDGET))
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

/// A batch of `rows` requests of one row of zeros, or of empty strings, each.
fn batch(signature: &Signature, rows: u32) -> Result<(Batch, Bytes), WarmError> {
    let batches = signature.batches();
    let inputs: Vec<_> =
        signature.inputs.iter().map(|spec| spec.head(spec.tail_with(batches, ANY))).collect();
    let row = |(spec, head): (&crate::Spec, &protocol::TensorHead)| {
        let width = spec.datatype.width().unwrap_or(4) as u64;
        head.tail.iter().fold(width, |bytes, dim| bytes.saturating_mul(*dim))
    };
    let lengths: Vec<u64> = signature.inputs.iter().zip(&inputs).map(row).collect();
    let sum = lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length));
    let bytes = sum.saturating_mul(rows.into());
    let len = usize::try_from(bytes).ok().filter(|_| bytes <= u64::from(MAX_BODY));
    let len = len.ok_or(WarmError::TooLarge { rows, bytes })?;
    let part = Part { rows: 1, bytes: lengths.iter().map(|length| *length as u32).collect() };
    let requests = vec![part; rows as usize];
    Ok((Batch { id: 0, replica: 0, inputs, requests }, Bytes::from(vec![0; len])))
}

/// Memory this process has in use, or 0 where the system does not say.
fn resident_bytes() -> u64 {
    memory::resident_bytes(Path::new("/proc/self")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synthetic(curve: &[(u32, f64)]) -> Box<dyn Engine> {
        let shape = |name: &str| protocol::TensorShape {
            name: name.into(),
            datatype: "FP32".into(),
            shape: vec![-1, 2],
        };
        let engine = protocol::Engine::Synthetic {
            curve: curve.to_vec(),
            noise: 0.0,
            inputs: vec![shape("x")],
            outputs: vec![shape("y")],
        };
        let spec = ModelSpec {
            name: "m".into(),
            version: "1".into(),
            engine,
            max_batch: 8,
            memory_mib: 0,
            threads: 1,
        };
        engine::load(&spec, Path::new("")).unwrap()
    }

    #[test]
    fn every_power_of_two_and_the_largest_size_are_warmed() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(8), [1, 2, 4, 8]);
        assert_eq!(sizes(10), [1, 2, 4, 8, 10]);
    }

    #[test]
    fn a_model_whose_latency_is_known_is_not_run_beyond_the_budget() {
        let mut engine = synthetic(&[(1, 3_600_000.0)]);
        let mut told = Vec::new();
        let points =
            warm(engine.as_mut(), 4, &Lane::default(), &mut |rows| told.push(rows)).unwrap();
        assert_eq!(told, [1, 2, 4]);
        let longest = 600_000_000;
        assert!(points.iter().all(|point| point.compute_us == [longest]), "{points:?}");
    }

    #[test]
    fn warming_measures_what_the_model_takes() {
        let mut engine = synthetic(&[(1, 0.5), (2, 1.0)]);
        let points = warm(engine.as_mut(), 2, &Lane::default(), &mut |_| {}).unwrap();
        assert_eq!(points.iter().map(|point| point.batch).collect::<Vec<_>>(), [1, 2]);
        assert!(points[0].compute_us[0] >= 500, "{points:?}");
        assert!(points[1].compute_us[0] >= 1_000, "{points:?}");
    }
}

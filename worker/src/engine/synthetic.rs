//! No model at all: batches take as long as a measured one took.
//!
//! It is for machines without a GPU, for tests, and for measuring the router itself. Its platform
//! says `synthetic`, so that nobody takes its answers for a model's.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use oip::Datatype;
use protocol::{Batch, TensorHead};
use simgpu::random::Random;

use super::{Done, Engine, LoadError, Output, Pace, RunError, pause};
use crate::{
    clock,
    signature::{Signature, Spec},
};

/// The longest a batch may be made to take.
const LONGEST: Duration = Duration::from_secs(600);

/// The size of an output's dimension that has none of its own.
const ANY: u64 = 1;

/// Latency by batch size: as measured at some sizes, on straight lines between them.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    points: Vec<(u32, f64)>,
    noise: f64,
    /// From the same start in every replica: runs can be repeated.
    chance: Random,
}

impl Curve {
    pub(crate) fn new(points: &[(u32, f64)], noise: f64) -> Result<Self, LoadError> {
        let rising = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let finite = points.iter().all(|(_, ms)| ms.is_finite() && *ms >= 0.0);
        if points.is_empty() || !rising || !finite || !(0.0..=1.0).contains(&noise) {
            return Err(LoadError::Curve { curve: points.to_vec() });
        }
        Ok(Self { points: points.to_vec(), noise, chance: Random::new(0) })
    }

    /// The latency of a batch of `rows`; beyond the last point the last line goes on.
    pub(crate) fn latency(&self, rows: u32) -> Duration {
        let first = self.points.first().copied().unwrap_or_default();
        let mut lines = self.points.windows(2);
        let line = lines.clone().find(|line| rows <= line[1].0).or_else(|| lines.next_back());
        let ms = match line {
            Some(&[low, high]) if rows > first.0 => {
                let slope = (high.1 - low.1) / f64::from(high.0 - low.0);
                low.1 + slope * f64::from(rows - low.0)
            }
            Some(_) | None => first.1,
        };
        Duration::try_from_secs_f64(ms.max(0.0) / 1_000.0).map_or(LONGEST, |d| d.min(LONGEST))
    }

    fn noisy_latency(&mut self, rows: u32) -> Duration {
        self.latency(rows).mul_f64(self.chance.spread(self.noise))
    }
}

/// An engine that sleeps.
pub(crate) struct Synthetic {
    signature: Signature,
    curve: Curve,
    pace: Pace,
    memory_bytes: u64,
    /// For each output, the input it repeats.
    echoes: Vec<Option<usize>>,
    zeros: Bytes,
}

impl Synthetic {
    pub(crate) fn new(signature: Signature, curve: Curve, memory_bytes: u64) -> Self {
        let same = |output: &Spec, input: &Spec| {
            output.shape == input.shape && output.datatype == input.datatype
        };
        let echoes = signature
            .outputs
            .iter()
            .map(|output| signature.inputs.iter().position(|input| same(output, input)))
            .collect();
        let (pace, zeros) = (Pace::default(), Bytes::new());
        Self { signature, curve, pace, memory_bytes, echoes, zeros }
    }

    fn outputs(&mut self, batch: &Batch, body: &Bytes) -> Vec<Output> {
        let batches = self.signature.batches();
        let mut outputs = Vec::with_capacity(self.echoes.len());
        for index in 0..self.echoes.len() {
            let spec = &self.signature.outputs[index];
            let output = if let Some(input) = self.echoes[index] {
                let head = spec.head(batch.inputs[input].tail.clone());
                echo(head, input, batch, body)
            } else {
                let head = spec.head(spec.tail_with(batches, ANY));
                let lengths = zero_lengths(spec.datatype, &head, batch);
                Output { head, data: vec![self.zeros(&lengths)], lengths }
            };
            outputs.push(output);
        }
        outputs
    }

    fn zeros(&mut self, lengths: &[u32]) -> Bytes {
        let len = lengths.iter().map(|len| *len as usize).sum();
        if self.zeros.len() < len {
            self.zeros = BytesMut::zeroed(len).freeze();
        }
        self.zeros.slice(..len)
    }
}

impl Engine for Synthetic {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn platform(&self) -> &str {
        "synthetic"
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn known_latency(&self, rows: u32) -> Option<Duration> {
        Some(self.curve.latency(rows))
    }

    fn pace(&self) -> Option<Pace> {
        Some(self.pace.clone())
    }

    fn run(&mut self, batch: &Batch, body: &Bytes) -> Result<Done, RunError> {
        let started = clock::now();
        let latency = self.curve.noisy_latency(batch.rows()).mul_f64(self.pace.factor());
        if !latency.is_zero() {
            pause::until(started + latency);
        }
        let computed = clock::now();
        let outputs = self.outputs(batch, body);
        Ok(Done {
            outputs,
            input: Duration::ZERO,
            compute: computed - started,
            output: clock::now() - computed,
        })
    }
}

fn echo(head: TensorHead, input: usize, batch: &Batch, body: &Bytes) -> Output {
    let lengths = batch.requests.iter().map(|part| part.bytes[input]).collect();
    let data = if batch.inputs.len() == 1 {
        vec![body.clone()]
    } else {
        let ranges = batch.ranges().skip(input).step_by(batch.inputs.len());
        ranges.map(|range| body.slice(range)).collect()
    };
    Output { head, lengths, data }
}

/// Zeros of a fixed width, or as many empty strings, which are four zeros each.
fn zero_lengths(datatype: Datatype, head: &TensorHead, batch: &Batch) -> Vec<u32> {
    let width = datatype.width().unwrap_or(4) as u64;
    let row = head.tail.iter().fold(width, |bytes, dim| bytes.saturating_mul(*dim));
    let length = |rows: u32| u32::try_from(row.saturating_mul(rows.into())).unwrap_or(u32::MAX);
    batch.requests.iter().map(|part| length(part.rows)).collect()
}

#[cfg(test)]
mod tests;

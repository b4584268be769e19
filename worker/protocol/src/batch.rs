//! Batches and how they end.

use std::{ops::Range, time::Duration};

use serde::{Deserialize, Serialize};

/// Requests to run together on one replica.
///
/// The body is request-major: for each request, the bytes of its inputs in the order of `inputs`.
/// With a single input of fixed width the body is thereby the whole batch's tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Chosen by the router, and unique on its connection while the batch lives.
    pub id: u64,
    pub replica: u32,
    pub inputs: Vec<TensorHead>,
    pub requests: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorHead {
    pub name: String,
    /// Its datatype as the Open Inference Protocol spells it.
    pub datatype: String,
    /// Its dimensions after the batch dimension; all of them if the model does not batch.
    pub tail: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its size along the batch dimension; 1 if the model does not batch.
    pub rows: u32,
    /// The byte length of each of its tensors.
    pub bytes: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub batch: u64,
    pub outcome: Outcome,
    pub facts: Facts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Done(Answer),
    Failed(Failure),
    /// It had not started when it was cancelled.
    Cancelled,
}

/// The outputs of a batch.
///
/// The body is output-major: the first output of every request, then the second, and so on, which
/// is how a model leaves them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub outputs: Vec<TensorHead>,
    pub requests: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub blame: Blame,
    pub message: String,
}

/// Who is to blame for a failure; only a replica's own failures speak against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Blame {
    /// The batch is not one the model can take; another replica would fail it too.
    Request,
    /// The replica; another one may do better.
    Replica,
}

/// What the executor measured of one batch, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// From the frame's last byte to the start of work.
    pub waited_us: u64,
    /// Making the model's inputs of the bytes.
    pub input_us: u64,
    pub compute_us: u64,
    /// Making bytes of the model's outputs.
    pub output_us: u64,
}

impl Facts {
    /// Time it was worked on, from the start of work to the last byte of its answer.
    pub fn worked(&self) -> Duration {
        let worked_us = self.input_us.saturating_add(self.compute_us);
        Duration::from_micros(worked_us.saturating_add(self.output_us))
    }

    /// The same with nothing in it longer than `most`, for one who knows that it cannot have been.
    pub fn at_most(self, most: Duration) -> Self {
        let most_us = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Self {
            waited_us: self.waited_us.min(most_us),
            input_us: self.input_us.min(most_us),
            compute_us: self.compute_us.min(most_us),
            output_us: self.output_us.min(most_us),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error("parts add up to {parts} bytes, the body has {body}")]
    Body { parts: u64, body: u64 },
    #[error("request {request} has {found} tensors, the batch has {wanted}")]
    Tensors { request: usize, found: usize, wanted: usize },
    #[error("the batch has a request without rows, or no requests")]
    Empty,
    #[error("the batch has {rows} rows")]
    Rows { rows: u64 },
}

impl Batch {
    /// The rows of all its requests; saturating, and exact once [`Batch::check`] has passed.
    pub fn rows(&self) -> u32 {
        self.requests.iter().fold(0, |sum, part| sum.saturating_add(part.rows))
    }

    pub fn body_len(&self) -> u64 {
        body_len(&self.requests)
    }

    /// Refuses a batch whose lengths do not account for a body of `body_len` bytes.
    pub fn check(&self, body_len: u64) -> Result<(), BatchError> {
        check(self.inputs.len(), &self.requests, body_len)
    }

    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let lengths = self.requests.iter().flat_map(|part| part.bytes.iter().copied());
        consecutive(lengths)
    }
}

impl Answer {
    pub fn body_len(&self) -> u64 {
        body_len(&self.requests)
    }

    pub fn check(&self, body_len: u64) -> Result<(), BatchError> {
        check(self.outputs.len(), &self.requests, body_len)
    }

    /// Where in the body each tensor stands: for each output, each request.
    ///
    /// Call after [`Answer::check`], which every decoded answer has passed.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let lengths = (0..self.outputs.len())
            .flat_map(|output| self.requests.iter().map(move |part| part.bytes[output]));
        consecutive(lengths)
    }
}

fn body_len(requests: &[Part]) -> u64 {
    let lengths = requests.iter().flat_map(|part| &part.bytes);
    lengths.fold(0, |sum: u64, len| sum.saturating_add(u64::from(*len)))
}

fn check(tensors: usize, requests: &[Part], body: u64) -> Result<(), BatchError> {
    let mut rows: u64 = 0;
    for (request, part) in requests.iter().enumerate() {
        if part.bytes.len() != tensors {
            return Err(BatchError::Tensors { request, found: part.bytes.len(), wanted: tensors });
        }
        if part.rows == 0 {
            return Err(BatchError::Empty);
        }
        rows += u64::from(part.rows);
    }
    if requests.is_empty() {
        return Err(BatchError::Empty);
    }
    if rows > u64::from(u32::MAX) {
        return Err(BatchError::Rows { rows });
    }
    let parts = body_len(requests);
    if parts == body { Ok(()) } else { Err(BatchError::Body { parts, body }) }
}

fn consecutive(lengths: impl Iterator<Item = u32>) -> impl Iterator<Item = Range<usize>> {
    lengths.scan(0, |start, len| {
        let range = *start..*start + len as usize;
        *start = range.end;
        Some(range)
    })
}

//! A remembered answer.

use oip::Tensor;

use super::key::{Key, detached};
use crate::request::Answer;

/// What an answer takes beside its tensors and its key: its node and places in the tables, which
/// may be half empty, and the headers of some ten allocations.
const FIXED_BYTES: usize = 384;
/// The same for each output.
const OUTPUT_BYTES: usize = size_of::<Tensor>() + 32;

/// An answer and the request it is for, sharing memory with nothing else.
#[derive(Debug)]
pub(super) struct Entry {
    key: Key,
    outputs: Vec<Tensor>,
    bytes: usize,
}

impl Entry {
    /// Copies `answer`: its data are slices of a whole batch's reply.
    pub(super) fn new(key: &Key, answer: &Answer) -> Self {
        let data = detached(answer.outputs.iter().map(|output| &output.data));
        let outputs = answer.outputs.iter().zip(data).map(|(output, data)| Tensor {
            name: output.name.clone(),
            datatype: output.datatype,
            shape: output.shape.clone(),
            data,
        });
        Self { key: key.detached(), outputs: outputs.collect(), bytes: Self::bytes_of(key, answer) }
    }

    /// What remembering `answer` would take.
    pub(super) fn bytes_of(key: &Key, answer: &Answer) -> usize {
        let of = |output: &Tensor| {
            let text = output.name.len() + size_of_val(&*output.shape);
            OUTPUT_BYTES + text + output.data.len()
        };
        FIXED_BYTES + key.bytes() + answer.outputs.iter().map(of).sum::<usize>()
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn answer(&self) -> Answer {
        Answer { outputs: self.outputs.clone(), spent: None }
    }
}

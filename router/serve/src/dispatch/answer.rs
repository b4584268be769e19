//! Checking a batch's outputs, and splitting them into its requests' answers.

use std::sync::Arc;

use bytes::Bytes;
use oip::{Datatype, Signature, Tensor, TensorSpec};
use protocol::{Answer, Part, TensorHead};

use super::state::Sent;

/// Each request's outputs. Their data are slices of `body`.
pub(super) fn split<'a>(
    answer: &'a Answer,
    body: &'a Bytes,
    sent: &'a Sent,
    batches: bool,
) -> impl Iterator<Item = (u64, Vec<Tensor>)> + 'a {
    let count = answer.requests.len();
    let ranges: Vec<_> = answer.ranges().collect();
    let mut outputs: Vec<_> = answer.outputs.iter().map(|head| Output::of(head, batches)).collect();
    sent.requests.iter().zip(&answer.requests).enumerate().map(move |(index, (id, part))| {
        let tensors = outputs.iter_mut().enumerate().map(|(output, shared)| {
            let data = body.slice(ranges[output * count + index].clone());
            shared.tensor(part.rows, data)
        });
        (*id, tensors.collect())
    })
}

/// An output of a batch: all that its requests' parts of it have in common.
struct Output<'a> {
    head: &'a TensorHead,
    batches: bool,
    name: Arc<str>,
    datatype: Datatype,
    /// Of the last part; most have as many rows as the one before.
    rows: u32,
    shape: Arc<[u64]>,
}

impl<'a> Output<'a> {
    fn of(head: &'a TensorHead, batches: bool) -> Self {
        let (name, rows) = (head.name.as_str().into(), 1);
        let datatype = head.datatype.parse().unwrap_or(Datatype::Bytes);
        Self { head, batches, name, datatype, rows, shape: shape(head, rows, batches) }
    }

    fn tensor(&mut self, rows: u32, data: Bytes) -> Tensor {
        if rows != self.rows {
            (self.rows, self.shape) = (rows, shape(self.head, rows, self.batches));
        }
        let (name, shape) = (Arc::clone(&self.name), Arc::clone(&self.shape));
        Tensor { name, datatype: self.datatype, shape, data }
    }
}

/// Whether `answer` is one to `sent` by a replica that gives what `signature` says; or what is wrong
/// with it.
///
/// The lengths account for the body already. Strings are taken on trust: to count them is to read them.
pub(super) fn check(answer: &Answer, sent: &Sent, signature: &Signature) -> Result<(), String> {
    let (wanted, found) = (sent.requests.len(), answer.requests.len());
    if wanted != found {
        return Err(format!("{found} answers came back for {wanted} requests"));
    }
    let (wanted, found) = (signature.outputs.len(), answer.outputs.len());
    if wanted != found {
        return Err(format!("{found} outputs came back where the model has {wanted}"));
    }
    for (index, (head, spec)) in answer.outputs.iter().zip(&signature.outputs).enumerate() {
        if head.name != spec.name || head.datatype != spec.datatype.name() {
            return Err(format!("output {} is not the model's", spec.name));
        }
        let widths = answer.requests.iter().map(|part| (part, part.bytes[index]));
        for ((part, bytes), rows) in widths.zip(&sent.rows) {
            let whole = part.rows == *rows && holds(head, spec, part, signature.batches(), bytes);
            if !whole {
                return Err(format!("output {} is not of its shape", spec.name));
            }
        }
    }
    Ok(())
}

/// Whether `bytes` are what the shape of an output needs.
fn holds(head: &TensorHead, spec: &TensorSpec, part: &Part, batches: bool, bytes: u32) -> bool {
    let Some(width) = spec.datatype.width() else { return true };
    let rows = if batches { u64::from(part.rows) } else { 1 };
    let elements = head.tail.iter().try_fold(rows, |product, size| product.checked_mul(*size));
    elements.and_then(|elements| elements.checked_mul(width as u64)) == Some(u64::from(bytes))
}

fn shape(head: &TensorHead, rows: u32, batches: bool) -> Arc<[u64]> {
    let rows = batches.then_some(u64::from(rows));
    rows.into_iter().chain(head.tail.iter().copied()).collect()
}

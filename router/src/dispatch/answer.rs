//! Splitting a batch's outputs into its requests' answers.

use bytes::Bytes;
use oip::{Datatype, Tensor};
use protocol::{Answer, TensorHead};

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
    sent.requests.iter().zip(&answer.requests).enumerate().map(move |(index, (id, part))| {
        let tensors = answer.outputs.iter().enumerate().map(|(output, head)| {
            let data = body.slice(ranges[output * count + index].clone());
            tensor(head, part.rows, batches, data)
        });
        (*id, tensors.collect())
    })
}

fn tensor(head: &TensorHead, rows: u32, batches: bool, data: Bytes) -> Tensor {
    let rows = batches.then_some(u64::from(rows));
    Tensor {
        name: head.name.clone(),
        datatype: head.datatype.parse().unwrap_or(Datatype::Bytes),
        shape: rows.into_iter().chain(head.tail.iter().copied()).collect(),
        data,
    }
}

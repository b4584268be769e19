//! A batch's bytes as elements, and elements as bytes.

use bytes::Bytes;
use protocol::Batch;

pub(super) struct Pieces<'a>(Vec<&'a [u8]>);

impl<'a> Pieces<'a> {
    pub(super) fn of(index: usize, batch: &Batch, body: &'a Bytes) -> Self {
        let ranges = batch.ranges().skip(index).step_by(batch.inputs.len());
        Self(ranges.map(|range| &body[range]).collect())
    }

    pub(super) fn each<const WIDTH: usize, T>(&self, read: impl Fn([u8; WIDTH]) -> T) -> Vec<T> {
        let mut elements = Vec::with_capacity(self.elements(WIDTH));
        for piece in &self.0 {
            elements.extend(piece.as_chunks().0.iter().map(|bytes| read(*bytes)));
        }
        elements
    }

    pub(super) fn elements(&self, width: usize) -> usize {
        self.0.iter().map(|piece| piece.len() / width).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.0.iter().copied()
    }
}

pub(super) fn flat<const WIDTH: usize, T: Copy>(
    elements: &[T],
    write: impl Fn(T) -> [u8; WIDTH],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(elements.len() * WIDTH);
    for element in elements {
        bytes.extend_from_slice(&write(*element));
    }
    bytes
}

//! What makes two requests equal.

use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;
use oip::Tensor;

/// The inputs of a request, names and datatypes aside.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    hash: u64,
    /// For each input the number of its dimensions, the dimensions, and the bytes of its data.
    outline: Box<[u64]>,
    data: Box<[Bytes]>,
}

impl Key {
    /// Shares the inputs' data.
    pub(super) fn new(inputs: &[Tensor], seed: &impl BuildHasher) -> Self {
        let outline: Box<[u64]> = inputs
            .iter()
            .flat_map(|input| {
                let (rank, bytes) = (input.shape.len() as u64, input.data.len() as u64);
                [rank].into_iter().chain(input.shape.iter().copied()).chain([bytes])
            })
            .collect();
        let mut hasher = seed.build_hasher();
        outline.iter().for_each(|number| hasher.write_u64(*number));
        inputs.iter().for_each(|input| hasher.write(&input.data));
        let data = inputs.iter().map(|input| input.data.clone()).collect();
        Self { hash: hasher.finish(), outline, data }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// The same key with data of its own, so that no request's body is kept for it.
    pub(super) fn detached(&self) -> Self {
        let data = detached(self.data.iter());
        Self { hash: self.hash, outline: self.outline.clone(), data: data.into() }
    }

    /// What it takes once detached, but for a fixed part.
    pub(super) fn bytes(&self) -> usize {
        let each = size_of::<Bytes>() * self.data.len();
        let data: usize = self.data.iter().map(Bytes::len).sum();
        size_of_val(&*self.outline) + each + data
    }
}

/// The same bytes in one block of their own.
pub(super) fn detached<'a>(parts: impl Iterator<Item = &'a Bytes> + Clone) -> Vec<Bytes> {
    let mut all = Vec::with_capacity(parts.clone().map(Bytes::len).sum());
    parts.clone().for_each(|part| all.extend_from_slice(part));
    let mut rest = Bytes::from(all);
    parts.map(|part| rest.split_to(part.len())).collect()
}

#[cfg(test)]
impl Key {
    /// The same key in the place of another.
    pub(super) fn placed(self, hash: u64) -> Self {
        Self { hash, ..self }
    }
}

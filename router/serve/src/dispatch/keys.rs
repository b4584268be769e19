//! Which requests may share a batch, as small numbers.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use oip::Tensor;

/// The most shapes told apart at once.
const MOST: usize = 1024;

/// Numbers given to the non-batch dimensions seen.
#[derive(Debug, Default)]
pub(super) struct Keys {
    known: HashMap<Box<[u64]>, u32, RandomState>,
    shapes: Vec<Vec<Vec<u64>>>,
    scratch: Vec<u64>,
}

impl Keys {
    /// The number of the inputs' shape, but for the batch dimension if the model has one.
    ///
    /// Names and datatypes are the signature's, so dimensions alone tell batches apart. None if
    /// there are too many shapes.
    pub(super) fn of(&mut self, inputs: &[Tensor], batches: bool) -> Option<u32> {
        self.number(inputs.iter().map(|input| tail(&input.shape, batches)))
    }

    /// The number of these dimensions, without the batch, of each input in order.
    pub(super) fn number<'t>(
        &mut self,
        tails: impl Iterator<Item = &'t [u64]> + Clone,
    ) -> Option<u32> {
        self.scratch.clear();
        for tail in tails.clone() {
            self.scratch.push(tail.len() as u64);
            self.scratch.extend_from_slice(tail);
        }
        if let Some(key) = self.known.get(&self.scratch[..]) {
            return Some(*key);
        }
        if self.shapes.len() >= MOST {
            return None;
        }
        let key = self.shapes.len() as u32;
        self.known.insert(self.scratch.as_slice().into(), key);
        self.shapes.push(tails.map(<[u64]>::to_vec).collect());
        Some(key)
    }

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    /// The elements of a row of the inputs of `key`.
    pub(super) fn elements(&self, key: u32) -> u64 {
        let of = |tail: &Vec<u64>| tail.iter().fold(1, |all: u64, size| all.saturating_mul(*size));
        self.shape(key).iter().map(of).fold(0, u64::saturating_add)
    }

    /// The dimensions behind `key`, input by input.
    pub(super) fn shape(&self, key: u32) -> &[Vec<u64>] {
        &self.shapes[key as usize]
    }

    /// Whether no further shape fits.
    pub(super) fn is_full(&self) -> bool {
        self.shapes.len() >= MOST
    }

    /// Forgets every shape. Only while no request holds a key.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.shapes.clear();
    }
}

fn tail(shape: &[u64], batches: bool) -> &[u64] {
    if batches { shape.get(1..).unwrap_or_default() } else { shape }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use oip::Datatype;

    use super::*;

    fn input(shape: &[u64]) -> Tensor {
        let bytes = shape.iter().product::<u64>() as usize;
        Tensor::new("x", Datatype::Uint8, shape.to_vec(), Bytes::from(vec![0; bytes])).unwrap()
    }

    #[test]
    fn only_the_batch_dimension_may_differ_within_a_key() {
        let mut keys = Keys::default();
        let one = keys.of(&[input(&[1, 4])], true);
        assert_eq!(keys.of(&[input(&[7, 4])], true), one);
        assert_ne!(keys.of(&[input(&[1, 5])], true), one);
        assert_ne!(keys.of(&[input(&[1, 2, 2])], true), one);
    }

    #[test]
    fn two_inputs_are_not_confused_with_one_of_both_dimensions() {
        let mut keys = Keys::default();
        let two = keys.of(&[input(&[1, 2]), input(&[1, 3])], true);
        assert_ne!(keys.of(&[input(&[1, 2, 3])], true), two);
    }

    #[test]
    fn shapes_are_bounded() {
        let mut keys = Keys::default();
        for size in 0..MOST as u64 {
            assert!(keys.of(&[input(&[1, size])], true).is_some());
        }
        assert_eq!(keys.of(&[input(&[1, MOST as u64])], true), None);
        assert!(keys.of(&[input(&[1, 5])], true).is_some());
    }
}

//! A tensor in binary form, and the arithmetic of its shape.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    datatype::Datatype,
    error::DecodeError,
    slot::{Role, Slot},
};

/// Bytes before each BYTES element.
pub(crate) const PREFIX: usize = 4;

/// A named tensor whose data is in binary form: little endian, row major, no padding.
///
/// Requests mostly differ in their data alone, so the rest is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub name: Arc<str>,
    pub datatype: Datatype,
    /// Its dimensions, the batch first if the model batches.
    pub shape: Arc<[u64]>,
    /// Its elements; a BYTES element stands behind its length as a `u32`.
    pub data: Bytes,
}

impl Tensor {
    /// An input, if `data` is what `shape` and `datatype` need.
    pub fn new(
        name: &str,
        datatype: Datatype,
        shape: Vec<u64>,
        data: Bytes,
    ) -> Result<Self, DecodeError> {
        let tensor = Self { name: name.into(), datatype, shape: shape.into(), data };
        tensor.outline(Role::Input).check(&tensor.data)?;
        Ok(tensor)
    }

    pub(crate) fn outline(&self, role: Role) -> Outline<'_> {
        Outline { role, name: &self.name, datatype: self.datatype, shape: &self.shape }
    }
}

/// A tensor without its data: what the data is checked against.
#[derive(Clone, Copy)]
pub(crate) struct Outline<'a> {
    pub(crate) role: Role,
    pub(crate) name: &'a str,
    pub(crate) datatype: Datatype,
    pub(crate) shape: &'a [u64],
}

impl Outline<'_> {
    pub(crate) fn slot(&self) -> Slot {
        Slot::new(self.role, self.name)
    }

    /// How many elements the shape holds, if they and their bytes can be counted in 64 bits.
    pub(crate) fn elements(&self) -> Result<u64, DecodeError> {
        // A zero anywhere empties the tensor, however large the dimensions beside it.
        if self.shape.contains(&0) {
            return Ok(0);
        }
        let elements = self.shape.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim));
        let width = self.datatype.width().unwrap_or(PREFIX) as u64;
        elements.filter(|elements| elements.checked_mul(width).is_some()).ok_or_else(|| {
            DecodeError::ShapeOverflow {
                tensor: self.slot(),
                shape: self.shape.to_vec(),
                datatype: self.datatype,
            }
        })
    }

    /// Whether `data` is exactly what the shape and the datatype need.
    pub(crate) fn check(&self, data: &[u8]) -> Result<(), DecodeError> {
        let elements = self.elements()?;
        let Some(width) = self.datatype.width() else {
            return self.check_strings(data, elements);
        };
        let needed = elements * width as u64;
        if needed != data.len() as u64 {
            return Err(DecodeError::ByteCount {
                tensor: self.slot(),
                shape: self.shape.to_vec(),
                datatype: self.datatype,
                needed,
                got: data.len() as u64,
            });
        }
        if self.datatype == Datatype::Bool
            && let Some(at) = data.iter().position(|byte| *byte > 1)
        {
            return Err(DecodeError::Element {
                tensor: self.slot(),
                element: at as u64,
                datatype: self.datatype,
                found: data[at].to_string(),
            });
        }
        Ok(())
    }

    fn check_strings(&self, data: &[u8], needed: u64) -> Result<(), DecodeError> {
        let mut got = 0;
        for element in Strings(data) {
            element.map_err(|short| DecodeError::Truncated {
                tensor: self.slot(),
                element: got,
                needed: short.needed,
                left: short.left,
            })?;
            got += 1;
        }
        if got == needed { Ok(()) } else { Err(self.miscounted(needed, got)) }
    }

    pub(crate) fn miscounted(&self, needed: u64, got: u64) -> DecodeError {
        DecodeError::ElementCount { tensor: self.slot(), shape: self.shape.to_vec(), needed, got }
    }
}

/// The elements of a BYTES tensor; after one that is cut short there are no more.
pub(crate) struct Strings<'a>(pub(crate) &'a [u8]);

/// A BYTES element that runs past the end.
pub(crate) struct Short {
    needed: u64,
    left: u64,
}

impl<'a> Iterator for Strings<'a> {
    type Item = Result<&'a [u8], Short>;

    fn next(&mut self) -> Option<Self::Item> {
        let data = std::mem::take(&mut self.0);
        if data.is_empty() {
            return None;
        }
        let Some((prefix, rest)) = data.split_first_chunk::<PREFIX>() else {
            return Some(Err(Short { needed: PREFIX as u64, left: data.len() as u64 }));
        };
        let length = u32::from_le_bytes(*prefix);
        let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let Some((element, rest)) = split else {
            return Some(Err(Short { needed: length.into(), left: rest.len() as u64 }));
        };
        self.0 = rest;
        Some(Ok(element))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(datatype: Datatype, shape: &[u64], data: &[u8]) -> Result<(), String> {
        Outline { role: Role::Input, name: "x", datatype, shape }
            .check(data)
            .map_err(|error| error.to_string())
    }

    fn problem(datatype: Datatype, shape: &[u64], data: &[u8]) -> String {
        check(datatype, shape, data).unwrap_err()
    }

    #[test]
    fn data_of_another_size_is_refused_with_both_numbers() {
        assert_eq!(
            problem(Datatype::Fp32, &[2, 3], &[0; 20]),
            "input \"x\": shape [2,3] needs 24 bytes of FP32, got 20"
        );
        assert_eq!(check(Datatype::Fp32, &[2, 3], &[0; 24]), Ok(()));
    }

    #[test]
    fn a_shape_too_large_to_count_is_refused_with_its_numbers() {
        let shape = [1 << 32, 1 << 32];
        let expected = "input \"x\": shape [4294967296,4294967296] of UINT8 is more than \
                        18446744073709551615 bytes";
        assert_eq!(problem(Datatype::Uint8, &shape, &[]), expected);
    }

    #[test]
    fn a_shape_whose_elements_fit_but_whose_bytes_do_not_is_refused() {
        assert!(problem(Datatype::Fp64, &[1 << 61], &[]).contains("of FP64 is more than"));
        assert!(problem(Datatype::Bytes, &[1 << 62], &[]).contains("of BYTES is more than"));
    }

    #[test]
    fn a_zero_dimension_empties_a_tensor_wherever_it_stands() {
        for shape in [[0, u64::MAX, u64::MAX], [u64::MAX, u64::MAX, 0]] {
            assert_eq!(check(Datatype::Fp64, &shape, &[]), Ok(()));
        }
    }

    #[test]
    fn a_shape_without_dimensions_is_one_element() {
        assert_eq!(check(Datatype::Int16, &[], &[1, 0]), Ok(()));
    }

    #[test]
    fn a_boolean_is_zero_or_one() {
        assert_eq!(check(Datatype::Bool, &[2], &[0, 1]), Ok(()));
        assert_eq!(
            problem(Datatype::Bool, &[2], &[1, 2]),
            "input \"x\": element 1 is 2, which is not BOOL"
        );
    }

    #[test]
    fn lengths_inside_a_bytes_tensor_are_followed_to_its_end() {
        let data = b"\x02\0\0\0hi\0\0\0\0";
        assert_eq!(check(Datatype::Bytes, &[2], data), Ok(()));
        assert_eq!(
            problem(Datatype::Bytes, &[3], data),
            "input \"x\": shape [3] needs 3 elements, got 2"
        );
        assert_eq!(
            problem(Datatype::Bytes, &[1], b"\x03\0\0\0hi"),
            "input \"x\": BYTES element 0 needs 3 bytes, 2 are left"
        );
        assert_eq!(
            problem(Datatype::Bytes, &[1], b"\0\0\0\0\x01\0"),
            "input \"x\": BYTES element 1 needs 4 bytes, 2 are left"
        );
    }
}

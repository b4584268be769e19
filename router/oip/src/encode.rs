//! Messages into bytes.

use bytes::Bytes;
use serde::Serialize;

use crate::{
    datatype::Datatype,
    envelope::BINARY_SIZE,
    error::EncodeError,
    parameters::Parameters,
    slot::{Role, Slot},
    tensor::{Strings, Tensor},
};

/// Tensors up to this many bytes are copied behind the JSON, which is cheaper than one more part.
const COPY_LIMIT: usize = 8 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In the JSON part, as `data`.
    Json,
    /// After the JSON part, as bytes.
    Binary,
}

/// A body in pieces, ready to be written one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// `Inference-Header-Content-Length`, if any tensor is binary.
    pub header_length: Option<usize>,
    /// The body when put together; large tensors are parts of their own, not copied.
    pub parts: Vec<Bytes>,
}

impl Encoded {
    pub fn content_length(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// The body in one piece, copied unless it already is.
    pub fn into_body(mut self) -> Bytes {
        match self.parts.len() {
            1 => self.parts.swap_remove(0),
            _ => self.parts.concat().into(),
        }
    }
}

/// A message being written: the JSON so far, and the binary tensors that will follow it.
pub(crate) struct Message<'a> {
    json: Vec<u8>,
    tails: Vec<&'a Bytes>,
}

impl<'a> Message<'a> {
    pub(crate) fn new() -> Self {
        Self { json: Vec::with_capacity(256), tails: Vec::new() }
    }

    /// Writes what needs no escaping: braces and known keys.
    pub(crate) fn raw(&mut self, text: &str) {
        self.json.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        serde_json::to_writer(&mut self.json, value)
            .expect("memory takes every write, and strings, numbers and maps of them are JSON");
    }

    /// Writes `"parameters":{..},` unless there are none.
    pub(crate) fn parameters(&mut self, parameters: &Parameters) {
        if !parameters.is_empty() {
            self.raw("\"parameters\":");
            self.value(parameters);
            self.raw(",");
        }
    }

    /// Writes one tensor. What has no JSON form is written in binary whatever `form` says.
    pub(crate) fn tensor(
        &mut self,
        role: Role,
        tensor: &'a Tensor,
        form: Form,
    ) -> Result<(), EncodeError> {
        tensor.outline(role).check(&tensor.data).map_err(EncodeError::Malformed)?;
        self.raw("{\"name\":");
        self.value(&tensor.name);
        self.raw(",\"shape\":");
        self.value(&tensor.shape);
        self.raw(",\"datatype\":");
        self.value(&tensor.datatype);
        if form == Form::Binary || !tensor.datatype.has_json_form() {
            self.raw(",\"parameters\":{\"");
            self.raw(BINARY_SIZE);
            self.raw("\":");
            self.value(&tensor.data.len());
            self.raw("}}");
            self.tails.push(&tensor.data);
        } else {
            self.raw(",\"data\":[");
            self.elements(role, tensor)?;
            self.raw("]}");
        }
        Ok(())
    }

    fn elements(&mut self, role: Role, tensor: &Tensor) -> Result<(), EncodeError> {
        let data = &tensor.data;
        match tensor.datatype {
            Datatype::Bool => self.numbers(data, |[byte]| byte != 0),
            Datatype::Uint8 => self.numbers(data, u8::from_le_bytes),
            Datatype::Uint16 => self.numbers(data, u16::from_le_bytes),
            Datatype::Uint32 => self.numbers(data, u32::from_le_bytes),
            Datatype::Uint64 => self.numbers(data, u64::from_le_bytes),
            Datatype::Int8 => self.numbers(data, i8::from_le_bytes),
            Datatype::Int16 => self.numbers(data, i16::from_le_bytes),
            Datatype::Int32 => self.numbers(data, i32::from_le_bytes),
            Datatype::Int64 => self.numbers(data, i64::from_le_bytes),
            Datatype::Fp32 => {
                finite(role, tensor, |bytes| f32::from_le_bytes(bytes).into())?;
                self.numbers(data, f32::from_le_bytes);
            }
            Datatype::Fp64 => {
                finite(role, tensor, f64::from_le_bytes)?;
                self.numbers(data, f64::from_le_bytes);
            }
            Datatype::Bytes => self.strings(role, tensor)?,
            Datatype::Fp16 | Datatype::Bf16 => unreachable!("half floats are written in binary"),
        }
        Ok(())
    }

    fn numbers<T: Serialize, const WIDTH: usize>(
        &mut self,
        data: &[u8],
        read: impl Fn([u8; WIDTH]) -> T,
    ) {
        for (index, bytes) in data.as_chunks::<WIDTH>().0.iter().enumerate() {
            if index > 0 {
                self.json.push(b',');
            }
            self.value(&read(*bytes));
        }
    }

    fn strings(&mut self, role: Role, tensor: &Tensor) -> Result<(), EncodeError> {
        for (element, bytes) in (0..).zip(Strings(&tensor.data).flatten()) {
            if element > 0 {
                self.json.push(b',');
            }
            let text = std::str::from_utf8(bytes).map_err(|_| EncodeError::NotUtf8 {
                tensor: Slot::new(role, &tensor.name),
                element,
            })?;
            self.value(text);
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Encoded {
        let header_length = (!self.tails.is_empty()).then_some(self.json.len());
        let mut parts = Vec::with_capacity(1 + self.tails.len());
        let mut open = self.json;
        for tail in self.tails {
            if tail.len() <= COPY_LIMIT {
                open.extend_from_slice(tail);
                continue;
            }
            if !open.is_empty() {
                parts.push(std::mem::take(&mut open).into());
            }
            parts.push(tail.clone());
        }
        if !open.is_empty() {
            parts.push(open.into());
        }
        Encoded { header_length, parts }
    }
}

fn finite<const WIDTH: usize>(
    role: Role,
    tensor: &Tensor,
    read: impl Fn([u8; WIDTH]) -> f64,
) -> Result<(), EncodeError> {
    for (element, bytes) in (0..).zip(tensor.data.as_chunks::<WIDTH>().0) {
        let number = read(*bytes);
        if !number.is_finite() {
            return Err(EncodeError::NotFinite {
                tensor: Slot::new(role, &tensor.name),
                element,
                found: number.to_string(),
            });
        }
    }
    Ok(())
}

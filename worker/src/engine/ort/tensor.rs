//! Bytes to ONNX Runtime's values and back.

use bytes::Bytes;
use oip::Datatype;
use ort::{
    session::SessionInputValue,
    value::{DynValue, PrimitiveTensorElementType, Tensor},
};
use protocol::Batch;

use crate::{
    engine::{
        RunError,
        pieces::{Pieces, flat},
    },
    signature::Spec,
};

pub(super) fn gather(
    index: usize,
    spec: &Spec,
    batch: &Batch,
    body: &Bytes,
    batches: bool,
) -> Result<(String, SessionInputValue<'static>), RunError> {
    let pieces = Pieces::of(index, batch, body);
    let rows = batches.then_some(u64::from(batch.rows()));
    let dims = rows.into_iter().chain(batch.inputs[index].tail.iter().copied());
    let shape: Vec<i64> = dims.map(|dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect();
    let value = match spec.datatype {
        Datatype::Fp32 => value(shape, pieces.each(f32::from_le_bytes)),
        Datatype::Fp64 => value(shape, pieces.each(f64::from_le_bytes)),
        Datatype::Int8 => value(shape, pieces.each(i8::from_le_bytes)),
        Datatype::Int16 => value(shape, pieces.each(i16::from_le_bytes)),
        Datatype::Int32 => value(shape, pieces.each(i32::from_le_bytes)),
        Datatype::Int64 => value(shape, pieces.each(i64::from_le_bytes)),
        Datatype::Uint8 => value(shape, pieces.each(u8::from_le_bytes)),
        Datatype::Uint16 => value(shape, pieces.each(u16::from_le_bytes)),
        Datatype::Uint32 => value(shape, pieces.each(u32::from_le_bytes)),
        Datatype::Uint64 => value(shape, pieces.each(u64::from_le_bytes)),
        Datatype::Bool => value(shape, pieces.each(|[byte]| byte != 0)),
        Datatype::Bytes => strings(shape, spec, &pieces),
        other @ (Datatype::Fp16 | Datatype::Bf16) => Err(unsupported(other)),
    }?;
    Ok((spec.name.clone(), value.into()))
}

fn value<T>(shape: Vec<i64>, elements: Vec<T>) -> Result<DynValue, RunError>
where
    T: PrimitiveTensorElementType + std::fmt::Debug + Clone + 'static,
{
    Tensor::from_array((shape, elements)).map(Tensor::into_dyn).map_err(|error| inputs(&error))
}

fn inputs(error: &dyn ToString) -> RunError {
    RunError::Inputs { reason: error.to_string() }
}

/// Elements of BYTES as the text they must be, each after its length.
fn strings(shape: Vec<i64>, spec: &Spec, pieces: &Pieces<'_>) -> Result<DynValue, RunError> {
    let mut elements: Vec<String> = Vec::new();
    for piece in pieces.iter() {
        let mut left = piece;
        while let Some((prefix, rest)) = left.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*prefix) as usize;
            let (name, number) = (&spec.name, elements.len());
            let (text, rest) = rest.split_at_checked(length).ok_or_else(|| {
                inputs(&format!("element {number} of input {name} ends after the input"))
            })?;
            let text = std::str::from_utf8(text).map_err(|_| {
                inputs(&format!(
                    "element {number} of input {name} is not UTF-8, as the model needs"
                ))
            })?;
            elements.push(text.to_owned());
            left = rest;
        }
    }
    let made = Tensor::from_string_array((shape, elements.as_slice()));
    made.map(Tensor::into_dyn).map_err(|error| inputs(&error))
}

pub(super) fn bytes(spec: &Spec, value: &DynValue) -> Result<(Vec<u64>, Bytes), RunError> {
    match spec.datatype {
        Datatype::Fp32 => extract(value, f32::to_le_bytes),
        Datatype::Fp64 => extract(value, f64::to_le_bytes),
        Datatype::Int8 => extract(value, i8::to_le_bytes),
        Datatype::Int16 => extract(value, i16::to_le_bytes),
        Datatype::Int32 => extract(value, i32::to_le_bytes),
        Datatype::Int64 => extract(value, i64::to_le_bytes),
        Datatype::Uint8 => extract(value, u8::to_le_bytes),
        Datatype::Uint16 => extract(value, u16::to_le_bytes),
        Datatype::Uint32 => extract(value, u32::to_le_bytes),
        Datatype::Uint64 => extract(value, u64::to_le_bytes),
        Datatype::Bool => extract(value, |bit: bool| [u8::from(bit)]),
        Datatype::Bytes => {
            let (shape, texts) = value.try_extract_strings().map_err(|error| failed(&error))?;
            let mut data = Vec::with_capacity(texts.iter().map(|text| text.len() + 4).sum());
            for text in texts {
                let length = u32::try_from(text.len()).map_err(|error| failed(&error))?;
                data.extend_from_slice(&length.to_le_bytes());
                data.extend_from_slice(text.as_bytes());
            }
            Ok((sizes(shape), Bytes::from(data)))
        }
        other @ (Datatype::Fp16 | Datatype::Bf16) => Err(unsupported(other)),
    }
}

fn extract<const WIDTH: usize, T: PrimitiveTensorElementType + Copy>(
    value: &DynValue,
    write: impl Fn(T) -> [u8; WIDTH],
) -> Result<(Vec<u64>, Bytes), RunError> {
    let (shape, elements) = value.try_extract_tensor::<T>().map_err(|error| failed(&error))?;
    Ok((sizes(shape), Bytes::from(flat(elements, write))))
}

fn sizes(shape: &[i64]) -> Vec<u64> {
    shape.iter().map(|dim| u64::try_from(*dim).unwrap_or(0)).collect()
}

fn failed(error: &dyn ToString) -> RunError {
    RunError::Model { reason: error.to_string() }
}

fn unsupported(datatype: Datatype) -> RunError {
    RunError::Model { reason: format!("this engine does not run {datatype}") }
}

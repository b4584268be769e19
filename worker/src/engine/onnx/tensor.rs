//! Bytes to tensors and back.

use bytes::Bytes;
use oip::Datatype;
use protocol::Batch;
use rten::Value;
use rten_tensor::Tensor;

use crate::{
    engine::{
        RunError,
        pieces::{Pieces, flat},
    },
    signature::{Refusal, Spec},
};

pub(super) fn gather(
    index: usize,
    spec: &Spec,
    batch: &Batch,
    body: &Bytes,
    batches: bool,
) -> Result<Value, RunError> {
    let pieces = Pieces::of(index, batch, body);
    let tail = batch.inputs[index].tail.iter().map(|dim| usize::try_from(*dim));
    let rows = batches.then_some(batch.rows() as usize);
    let shape = rows.into_iter().map(Ok).chain(tail).collect::<Result<Vec<usize>, _>>();
    let shape = shape.map_err(|error| RunError::Inputs { reason: error.to_string() })?;
    match spec.datatype {
        Datatype::Fp32 => value(&shape, pieces.each(f32::from_le_bytes)),
        Datatype::Int32 => value(&shape, pieces.each(i32::from_le_bytes)),
        Datatype::Int64 => value(&shape, narrowed(&pieces, spec)?),
        Datatype::Bool => value(&shape, pieces.each(|[byte]| i32::from(byte != 0))),
        Datatype::Uint8 => value(&shape, pieces.each(u8::from_le_bytes)),
        Datatype::Int8 => value(&shape, pieces.each(i8::from_le_bytes)),
        other @ (Datatype::Uint16
        | Datatype::Uint32
        | Datatype::Uint64
        | Datatype::Int16
        | Datatype::Fp16
        | Datatype::Bf16
        | Datatype::Fp64
        | Datatype::Bytes) => Err(unsupported(other)),
    }
}

pub(super) fn bytes(spec: &Spec, value: Value) -> Result<Bytes, RunError> {
    let bytes = match (spec.datatype, value) {
        (Datatype::Fp32, Value::FloatTensor(tensor)) => flat(&tensor.into_data(), f32::to_le_bytes),
        (Datatype::Int32, Value::Int32Tensor(tensor)) => {
            flat(&tensor.into_data(), i32::to_le_bytes)
        }
        (Datatype::Int64, Value::Int32Tensor(tensor)) => {
            flat(&tensor.into_data(), |number| i64::from(number).to_le_bytes())
        }
        (Datatype::Bool, Value::Int32Tensor(tensor)) => {
            flat(&tensor.into_data(), |bit| [u8::from(bit != 0)])
        }
        (Datatype::Uint8, Value::UInt8Tensor(tensor)) => tensor.into_data(),
        (Datatype::Int8, Value::Int8Tensor(tensor)) => flat(&tensor.into_data(), i8::to_le_bytes),
        (declared, value) => {
            let (name, found) = (&spec.name, value.dtype());
            let reason = format!("output {name} is declared {declared} and came as {found}");
            return Err(RunError::Model { reason });
        }
    };
    Ok(Bytes::from(bytes))
}

/// INT64 as the INT32 this engine holds; one that does not fit is the caller's to know.
fn narrowed(pieces: &Pieces<'_>, spec: &Spec) -> Result<Vec<i32>, Refusal> {
    let mut elements = Vec::with_capacity(pieces.elements(8));
    for bytes in pieces.iter().flat_map(|piece| piece.as_chunks().0) {
        let value = i64::from_le_bytes(*bytes);
        let narrow =
            i32::try_from(value).map_err(|_| Refusal::Value { input: spec.name.clone(), value })?;
        elements.push(narrow);
    }
    Ok(elements)
}

fn value<T>(shape: &[usize], elements: Vec<T>) -> Result<Value, RunError>
where
    Value: From<Tensor<T>>,
{
    Value::from_shape(shape, elements)
        .map_err(|error| RunError::Inputs { reason: error.to_string() })
}

fn unsupported(datatype: Datatype) -> RunError {
    RunError::Model { reason: format!("this engine does not run {datatype}") }
}

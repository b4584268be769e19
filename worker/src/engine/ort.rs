//! ONNX models, run by ONNX Runtime, on CUDA where the library has it.
//!
//! The library is the user's own and is loaded at run time; nothing is linked or downloaded when
//! this is built.

use std::{ffi::OsStr, sync::OnceLock};

use bytes::Bytes;
use oip::Datatype;
use ort::{
    environment::Environment,
    ep,
    session::{Session, SessionInputValue},
    value::{DynValue, Outlet, PrimitiveTensorElementType, Tensor, TensorElementType, ValueType},
};
use protocol::Batch;

use super::{
    Done, Engine, LoadError, Output, RunError,
    pieces::{Pieces, flat},
};
use crate::{
    clock,
    signature::{Signature, Spec},
};

/// The variable that names ONNX Runtime's shared library.
pub(super) const LIBRARY: &str = "ORT_DYLIB_PATH";

pub(crate) struct OnnxRuntime {
    session: Session,
    signature: Signature,
    file_bytes: u64,
}

impl OnnxRuntime {
    pub(crate) fn load(library: &OsStr, path: &str, threads: usize) -> Result<Self, LoadError> {
        let read = |source| LoadError::Read { path: path.to_owned(), source };
        let file_bytes = std::fs::metadata(path).map_err(read)?.len();
        let unsupported = |reason: String| LoadError::Unsupported { path: path.to_owned(), reason };
        let environment = environment(library).map_err(unsupported)?;
        let session = open(environment, path, threads)
            .map_err(|reason| LoadError::NotAModel { path: path.to_owned(), reason })?;
        let specs = |outlets: &[Outlet]| outlets.iter().map(spec).collect::<Result<Vec<_>, _>>();
        let signature = Signature {
            inputs: specs(session.inputs()).map_err(unsupported)?,
            outputs: specs(session.outputs()).map_err(unsupported)?,
        };
        Ok(Self { session, signature, file_bytes })
    }
}

impl Engine for OnnxRuntime {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn platform(&self) -> &str {
        "onnxruntime_onnx"
    }

    fn memory_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn run(&mut self, batch: &Batch, body: &Bytes) -> Result<Done, RunError> {
        let started = clock::now();
        let batches = self.signature.batches();
        let gather = |(index, spec)| gather(index, spec, batch, body, batches);
        let inputs: Vec<(String, SessionInputValue<'_>)> =
            self.signature.inputs.iter().enumerate().map(gather).collect::<Result<_, _>>()?;
        let gathered = clock::now();
        let free = self.signature.has_free_dimensions();
        let values = self.session.run(inputs).map_err(|error| {
            let reason = error.to_string();
            if free { RunError::Inputs { reason } } else { RunError::Model { reason } }
        })?;
        let computed = clock::now();
        let outputs = self.signature.outputs.iter().map(|spec| {
            let value = values.get(&spec.name).ok_or_else(|| RunError::Model {
                reason: format!("output {} did not come", spec.name),
            })?;
            let (shape, data) = bytes(spec, value)?;
            Output::of_batch(spec, &shape, data, batch, batches)
        });
        let outputs = outputs.collect::<Result<_, _>>()?;
        Ok(Done {
            outputs,
            input: gathered - started,
            compute: computed - gathered,
            output: clock::now() - computed,
        })
    }
}

/// The one environment of this process.
fn environment(library: &OsStr) -> Result<&'static Environment, String> {
    static ENVIRONMENT: OnceLock<Result<Environment, String>> = OnceLock::new();
    let made = ENVIRONMENT.get_or_init(|| {
        let builder = ort::init_from(library).map_err(|error| error.to_string())?;
        builder.with_name("sluice").build().map_err(|error| error.to_string())
    });
    made.as_ref().map_err(Clone::clone)
}

fn open(environment: &Environment, path: &str, threads: usize) -> Result<Session, String> {
    let text = |error: ort::Error<_>| error.to_string();
    Session::builder(environment)
        .map_err(|error| error.to_string())?
        .with_intra_threads(threads.max(1))
        .map_err(text)?
        .with_execution_providers([ep::CUDA::default().build()])
        .map_err(text)?
        .commit_from_file(path)
        .map_err(|error| error.to_string())
}

fn spec(outlet: &Outlet) -> Result<Spec, String> {
    let name = outlet.name().to_owned();
    let ValueType::Tensor { ty, shape, .. } = outlet.dtype() else {
        return Err(format!("{name:?} is not a tensor"));
    };
    let datatype = match ty {
        TensorElementType::Float32 => Datatype::Fp32,
        TensorElementType::Float64 => Datatype::Fp64,
        TensorElementType::Int8 => Datatype::Int8,
        TensorElementType::Int16 => Datatype::Int16,
        TensorElementType::Int32 => Datatype::Int32,
        TensorElementType::Int64 => Datatype::Int64,
        TensorElementType::Uint8 => Datatype::Uint8,
        TensorElementType::Uint16 => Datatype::Uint16,
        TensorElementType::Uint32 => Datatype::Uint32,
        TensorElementType::Uint64 => Datatype::Uint64,
        TensorElementType::Bool => Datatype::Bool,
        other => return Err(format!("{name:?} is {other}, which this engine does not run")),
    };
    Ok(Spec { name, datatype, shape: shape.iter().copied().collect() })
}

fn gather(
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
        other @ (Datatype::Fp16 | Datatype::Bf16 | Datatype::Bytes) => Err(unsupported(other)),
    }?;
    Ok((spec.name.clone(), value.into()))
}

fn value<T>(shape: Vec<i64>, elements: Vec<T>) -> Result<DynValue, RunError>
where
    T: PrimitiveTensorElementType + std::fmt::Debug + Clone + 'static,
{
    Tensor::from_array((shape, elements))
        .map(Tensor::into_dyn)
        .map_err(|error| RunError::Inputs { reason: error.to_string() })
}

fn bytes(spec: &Spec, value: &DynValue) -> Result<(Vec<u64>, Bytes), RunError> {
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
        other @ (Datatype::Fp16 | Datatype::Bf16 | Datatype::Bytes) => Err(unsupported(other)),
    }
}

fn extract<const WIDTH: usize, T: PrimitiveTensorElementType + Copy>(
    value: &DynValue,
    write: impl Fn(T) -> [u8; WIDTH],
) -> Result<(Vec<u64>, Bytes), RunError> {
    let (shape, elements) = value
        .try_extract_tensor::<T>()
        .map_err(|error| RunError::Model { reason: error.to_string() })?;
    let shape = shape.iter().map(|dim| u64::try_from(*dim).unwrap_or(0)).collect();
    Ok((shape, Bytes::from(flat(elements, write))))
}

fn unsupported(datatype: Datatype) -> RunError {
    RunError::Model { reason: format!("this engine does not run {datatype}") }
}

#[cfg(test)]
mod tests;

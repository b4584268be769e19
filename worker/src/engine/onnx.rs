//! ONNX models, run on the CPU by rten.
//!
//! rten holds INT64 and BOOL tensors as 32-bit integers, and says so in what it tells of a model.
//! Callers have read the model, not rten: they are told what the file declares, and the conversion
//! happens in the one pass that gathers a batch anyway.

mod declared;
mod operators;
mod tensor;

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use protocol::{Batch, Device, Runtime};
use rten::{LoadErrorKind, Model, NodeId, RunErrorKind, RunOptions, ThreadPool, Value};
use rten_tensor::prelude::*;

use super::{Done, Engine, LoadError, Output, RunError};
use crate::{
    clock,
    signature::{Signature, Spec},
};

pub(crate) struct Onnx {
    model: Model,
    signature: Signature,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
    threads: Arc<ThreadPool>,
    runtime: Runtime,
    file_bytes: u64,
}

impl Onnx {
    /// Loads a model that rten runs because of `why`.
    pub(crate) fn load(path: &str, threads: u32, why: &str) -> Result<Self, LoadError> {
        let read = |source| LoadError::Read { path: path.to_owned(), source };
        let file_bytes = std::fs::metadata(path).map_err(read)?.len();
        let declared = declared::read(path)?;
        let model = load_model(path, why)?;
        let named = |ids: &[NodeId]| -> Vec<String> {
            let name = |id| model.node_info(id).and_then(|info| info.name().map(str::to_owned));
            ids.iter().map(|id| name(*id).unwrap_or_default()).collect()
        };
        let signature =
            declared.signature(path, &named(model.input_ids()), &named(model.output_ids()))?;
        let (inputs, outputs) = (model.input_ids().to_vec(), model.output_ids().to_vec());
        let runtime = Runtime {
            name: "rten".to_owned(),
            version: None,
            device: Device::Cpu,
            threads: threads.max(1),
            why: Some(why.to_owned()),
        };
        let threads = Arc::new(ThreadPool::with_num_threads(threads.max(1) as usize));
        Ok(Self { model, signature, inputs, outputs, threads, runtime, file_bytes })
    }

    fn compute(&self, inputs: Vec<Value>) -> Result<Vec<Value>, RunError> {
        let inputs = self.inputs.iter().copied().zip(inputs.into_iter().map(Into::into)).collect();
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.threads)));
        self.model.run(inputs, &self.outputs, Some(options)).map_err(|error| {
            let reason = error.to_string();
            // A model of fixed dimensions was warmed at them; sizes it was not warmed at are the
            // caller's choice, and so is an operator's failure over them.
            let chosen = self.signature.has_free_dimensions();
            let failed = error.kind() == RunErrorKind::OperatorError;
            if error.kind() == RunErrorKind::InvalidInput || (failed && chosen) {
                RunError::Inputs { reason }
            } else {
                RunError::Model { reason }
            }
        })
    }
}

impl Engine for Onnx {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn platform(&self) -> &str {
        "rten_onnx"
    }

    fn runtime(&self) -> Option<Runtime> {
        Some(self.runtime.clone())
    }

    fn memory_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn run(&mut self, batch: &Batch, body: &Bytes) -> Result<Done, RunError> {
        let started = clock::now();
        let batches = self.signature.batches();
        let gather = |(index, spec)| tensor::gather(index, spec, batch, body, batches);
        let inputs =
            self.signature.inputs.iter().enumerate().map(gather).collect::<Result<_, _>>()?;
        let gathered = clock::now();
        let values = self.compute(inputs)?;
        let computed = clock::now();
        let outputs = self.signature.outputs.iter().zip(values);
        let outputs = outputs
            .map(|(spec, value)| scatter(spec, value, batch, batches))
            .collect::<Result<_, _>>()?;
        Ok(Done {
            outputs,
            input: gathered - started,
            compute: computed - gathered,
            output: clock::now() - computed,
        })
    }
}

fn load_model(path: &str, why: &str) -> Result<Model, LoadError> {
    Model::load_file(Path::new(path)).map_err(|error| {
        let (path, reason) = (path.to_owned(), error.to_string());
        let kind = error.kind();
        let operators = operators::missing(&path);
        if !operators.is_empty() {
            return LoadError::Operators { path, operators, why: why.to_owned() };
        }
        if kind == LoadErrorKind::ParseError || kind == LoadErrorKind::UnknownFileType {
            LoadError::NotAModel { path, reason }
        } else {
            LoadError::Unsupported { path, reason }
        }
    })
}

fn scatter(spec: &Spec, value: Value, batch: &Batch, batches: bool) -> Result<Output, RunError> {
    let shape: Vec<u64> = value.shape().iter().map(|dim| *dim as u64).collect();
    let data = tensor::bytes(spec, value)?;
    Output::of_batch(spec, &shape, data, batch, batches)
}

#[cfg(test)]
mod tests;

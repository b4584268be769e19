//! ONNX models, run by ONNX Runtime, on CUDA where the library and the slice have it.
//!
//! The library is the user's own and is loaded at run time; nothing is linked or downloaded when
//! this is built. Its threads are always a number and never spin: left to choose, it starts one for
//! each processor, and binds them to processors of its own choice whatever the slice's are.

mod tensor;

use std::{
    env,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use bytes::Bytes;
use oip::Datatype;
use ort::{
    ErrorCode,
    environment::Environment,
    ep::{self, ExecutionProvider},
    session::{
        HasSelectedOutputs, OutputSelector, RunOptions, Session, SessionInputValue,
        builder::SessionBuilder,
    },
    value::{Outlet, TensorElementType, ValueType},
};
use protocol::{Batch, Device, Runtime};

use super::{Done, Engine, LoadError, Output, RunError};
use crate::{
    clock, onnxruntime,
    signature::{Signature, Spec},
};

/// The library in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    environment: &'static Environment,
    library: &'static Path,
}

impl Loaded {
    /// The first library asked for; a process has one.
    pub(crate) fn of(library: &Path) -> Result<Self, String> {
        static LOADED: OnceLock<Result<(Environment, PathBuf), String>> = OnceLock::new();
        let loaded = LOADED.get_or_init(|| {
            let builder = ort::init_from(library).map_err(|error| error.to_string())?;
            let made = builder.with_name("sluice").with_telemetry(false).build();
            made.map(|made| (made, library.to_owned())).map_err(|error| error.to_string())
        });
        let (environment, library) = loaded.as_ref().map_err(Clone::clone)?;
        Ok(Self { environment, library })
    }
}

/// How a model shall be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) device: Option<Device>,
    pub(crate) threads: u32,
}

pub(crate) struct OnnxRuntime {
    session: Session,
    signature: Signature,
    /// Which outputs are computed: those that are tensors.
    options: RunOptions<HasSelectedOutputs>,
    left_out: Vec<String>,
    runtime: Runtime,
    file_bytes: u64,
}

impl OnnxRuntime {
    pub(crate) fn load(loaded: Loaded, path: &str, wish: Wish) -> Result<Self, LoadError> {
        let read = |source| LoadError::Read { path: path.to_owned(), source };
        let file_bytes = std::fs::metadata(path).map_err(read)?.len();
        let unsupported = |reason: String| LoadError::Unsupported { path: path.to_owned(), reason };
        let (session, device, why) = open(loaded.environment, path, wish)?;
        let specs = |outlets: &[&Outlet]| outlets.iter().map(|one| spec(one)).collect();
        let is_tensor = |outlet: &&Outlet| matches!(outlet.dtype(), ValueType::Tensor { .. });
        let (tensors, others): (Vec<_>, Vec<_>) = session.outputs().iter().partition(is_tensor);
        let inputs: Vec<&Outlet> = session.inputs().iter().collect();
        let inputs: Result<Vec<Spec>, String> = specs(&inputs);
        let outputs: Result<Vec<Spec>, String> = specs(&tensors);
        let signature = Signature {
            inputs: inputs.map_err(unsupported)?,
            outputs: outputs.map_err(unsupported)?,
        };
        let left_out: Vec<String> = others.iter().map(|one| left_out(one)).collect();
        if signature.outputs.is_empty() {
            return Err(unsupported(left_out.join("; ")));
        }
        let names = others.iter().map(|one| one.name().to_owned());
        let selector = names.fold(OutputSelector::default(), OutputSelector::without);
        let options = RunOptions::new().map_err(|error| unsupported(error.to_string()))?;
        let runtime = Runtime {
            name: "onnxruntime".to_owned(),
            version: onnxruntime::version_of(loaded.library),
            device,
            threads: wish.threads,
            why,
        };
        let options = options.with_outputs(selector);
        Ok(Self { session, signature, options, left_out, runtime, file_bytes })
    }
}

impl Engine for OnnxRuntime {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn platform(&self) -> &str {
        "onnxruntime_onnx"
    }

    fn runtime(&self) -> Option<Runtime> {
        Some(self.runtime.clone())
    }

    fn left_out(&self) -> &[String] {
        &self.left_out
    }

    fn memory_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn run(&mut self, batch: &Batch, body: &Bytes) -> Result<Done, RunError> {
        let started = clock::now();
        let batches = self.signature.batches();
        let gather = |(index, spec)| tensor::gather(index, spec, batch, body, batches);
        let inputs: Vec<(String, SessionInputValue<'_>)> =
            self.signature.inputs.iter().enumerate().map(gather).collect::<Result<_, _>>()?;
        let gathered = clock::now();
        let free = self.signature.has_free_dimensions();
        let values = self.session.run_with_options(inputs, &self.options).map_err(|error| {
            let reason = error.to_string();
            if free { RunError::Inputs { reason } } else { RunError::Model { reason } }
        })?;
        let computed = clock::now();
        let outputs = self.signature.outputs.iter().map(|spec| {
            let value = values.get(&spec.name).ok_or_else(|| RunError::Model {
                reason: format!("output {} did not come", spec.name),
            })?;
            let (shape, data) = tensor::bytes(spec, value)?;
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

type Opened = (Session, Device, Option<String>);

/// Opens a model on the GPU if that is wished and can be, or else, unless it must be, on the CPU.
fn open(environment: &Environment, path: &str, wish: Wish) -> Result<Opened, LoadError> {
    let on_cpu =
        |why| Ok((session(environment, path, wish.threads, Device::Cpu)?, Device::Cpu, why));
    if wish.device == Some(Device::Cpu) {
        return on_cpu(None);
    }
    let must = wish.device == Some(Device::Gpu);
    let no_gpu = |reason: String| LoadError::NoGpu { path: path.to_owned(), reason };
    let hidden = env::var_os("CUDA_VISIBLE_DEVICES").is_some_and(|devices| devices.is_empty());
    if hidden || !ep::CUDA::is_available().unwrap_or(false) {
        let reason = if hidden { "its slice has no GPU" } else { "this onnxruntime has no CUDA" };
        return if must { Err(no_gpu(reason.to_owned())) } else { on_cpu(None) };
    }
    match session(environment, path, wish.threads, Device::Gpu) {
        Ok(session) => Ok((session, Device::Gpu, None)),
        Err(error) if must => Err(no_gpu(error.to_string())),
        Err(error) => on_cpu(Some(format!("not on the GPU: {error}"))),
    }
}

fn session(
    environment: &Environment,
    path: &str,
    threads: u32,
    device: Device,
) -> Result<Session, LoadError> {
    let unsupported = |reason: String| LoadError::Unsupported { path: path.to_owned(), reason };
    let mut builder = options(environment, threads, device).map_err(unsupported)?;
    builder.commit_from_file(path).map_err(|error| {
        let (path, reason) = (path.to_owned(), error.to_string());
        if matches!(error.code(), ErrorCode::InvalidProtobuf | ErrorCode::NoModel) {
            LoadError::NotAModel { path, reason }
        } else {
            LoadError::Unsupported { path, reason }
        }
    })
}

fn options(
    environment: &Environment,
    threads: u32,
    device: Device,
) -> Result<SessionBuilder, String> {
    let text = |error: ort::Error<SessionBuilder>| error.to_string();
    let builder = Session::builder(environment).map_err(|error| error.to_string())?;
    let builder = builder.with_intra_threads(threads.max(1) as usize).map_err(text)?;
    let builder = builder.with_inter_threads(1).map_err(text)?;
    let builder = builder.with_intra_op_spinning(false).map_err(text)?;
    match device {
        Device::Cpu => Ok(builder),
        // Without this it would run on the CPU and say so nowhere.
        Device::Gpu => {
            let cuda = ep::CUDA::default().build().error_on_failure();
            builder.with_execution_providers([cuda]).map_err(text)
        }
    }
}

/// What the runtime calls them, and the Open Inference Protocol.
const DATATYPES: [(TensorElementType, Datatype); 12] = [
    (TensorElementType::Float32, Datatype::Fp32),
    (TensorElementType::Float64, Datatype::Fp64),
    (TensorElementType::Int8, Datatype::Int8),
    (TensorElementType::Int16, Datatype::Int16),
    (TensorElementType::Int32, Datatype::Int32),
    (TensorElementType::Int64, Datatype::Int64),
    (TensorElementType::Uint8, Datatype::Uint8),
    (TensorElementType::Uint16, Datatype::Uint16),
    (TensorElementType::Uint32, Datatype::Uint32),
    (TensorElementType::Uint64, Datatype::Uint64),
    (TensorElementType::Bool, Datatype::Bool),
    (TensorElementType::String, Datatype::Bytes),
];

fn spec(outlet: &Outlet) -> Result<Spec, String> {
    let name = outlet.name().to_owned();
    let ValueType::Tensor { ty, shape, .. } = outlet.dtype() else {
        return Err(format!("{name:?} is not a tensor"));
    };
    let known = DATATYPES.iter().find(|(theirs, _)| theirs == ty);
    let Some((_, datatype)) = known else {
        return Err(format!("{name:?} is {ty}, which this engine does not run"));
    };
    Ok(Spec { name, datatype: *datatype, shape: shape.iter().copied().collect() })
}

/// What is said of an output that no tensor can carry.
fn left_out(outlet: &Outlet) -> String {
    let name = outlet.name();
    match outlet.dtype() {
        ValueType::Sequence(inner) if matches!(**inner, ValueType::Map { .. }) => format!(
            "output {name:?} is a list of maps (ZipMap) and is left out; convert the model with \
             zipmap=False to have it as a tensor"
        ),
        ValueType::Sequence(_)
        | ValueType::Map { .. }
        | ValueType::Optional(_)
        | ValueType::Tensor { .. } => {
            format!(
                "output {name:?} is {} and is left out; only tensors are served",
                outlet.dtype()
            )
        }
    }
}

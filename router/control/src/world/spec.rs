//! What an executor is told of a model.

use std::{path::Path, time::Duration};

use protocol::{Device, Engine, ModelSpec, Server, Shapes, TensorShape};

/// The least time a server gets for a batch before it is taken to hang. One that is merely late
/// must not be ended for it, so it gets twice the model's timeout where that is longer.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// How `model` is loaded on a slice of `profile`.
pub fn of(model: &config::Model, profile: &str) -> ModelSpec {
    ModelSpec {
        name: model.name.clone(),
        version: model.version.clone(),
        engine: match &model.engine {
            config::Engine::Onnx { path } => Engine::Onnx { path: absolute(path) },
            config::Engine::Server(given) => {
                Engine::Server(Box::new(server(given, model.timeout())))
            }
            config::Engine::Synthetic { profile: measured, inputs, outputs } => Engine::Synthetic {
                curve: measured.curve(profile),
                noise: 0.0,
                inputs: inputs.iter().map(shape).collect(),
                outputs: outputs.iter().map(shape).collect(),
            },
        },
        content: model.content.clone(),
        max_batch: model.max_batch,
        memory_mib: model.memory_mib,
        threads: model.threads.unwrap_or_else(|| cores(profile)),
        device: match model.device {
            config::Device::Auto => None,
            config::Device::Cpu => Some(Device::Cpu),
            config::Device::Gpu => Some(Device::Gpu),
        },
        warmup: model.warmup.shapes.clone(),
        warmup_file: model.warmup.file.as_deref().map(absolute),
    }
}

/// A path as a worker may open it, which may run in another directory.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The cores of a slice: those of `cpu:2` are 2. What shares a GPU shares the machine's cores with
/// all that is on it, the router included, and gets one.
fn cores(profile: &str) -> u32 {
    mig::cores_of(profile).map_or(1, u32::from)
}

fn server(given: &config::Server, timeout: Duration) -> Server {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let shapes = |signature: &config::Signature| Shapes {
        inputs: signature.inputs.iter().map(shape).collect(),
        outputs: signature.outputs.iter().map(shape).collect(),
    };
    Server {
        command: given.command.clone(),
        environment: given.environment.clone(),
        directory: Some(given.directory.display().to_string()),
        served_name: given.served_name.clone(),
        ready_timeout_ms: millis(given.ready_timeout),
        answer_timeout_ms: millis(SERVER_PATIENCE.max(timeout * 2)),
        signature: given.signature.as_ref().map(shapes),
    }
}

fn shape(spec: &config::TensorSpec) -> TensorShape {
    TensorShape {
        name: spec.name.clone(),
        datatype: spec.datatype.name().to_owned(),
        shape: spec.shape.clone(),
    }
}

//! What an executor is told of a model.

use std::time::Duration;

use protocol::{Engine, ModelSpec, Server, Shapes, TensorShape};

/// The least time a server gets for a batch before it is taken to hang. One that is merely late
/// must not be ended for it, so it gets twice the objective where that is longer.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// How `model` is loaded on a slice of `profile`.
pub(crate) fn of(model: &config::Model, profile: &str) -> ModelSpec {
    ModelSpec {
        name: model.name.clone(),
        version: model.version.clone(),
        engine: match &model.engine {
            config::Engine::Onnx { path } => {
                // A worker may run in another directory.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                Engine::Onnx { path: path.display().to_string() }
            }
            config::Engine::Server(given) => Engine::Server(Box::new(server(given, model.slo))),
            config::Engine::Synthetic { profile: measured, inputs, outputs } => Engine::Synthetic {
                curve: measured.curve(profile),
                noise: 0.0,
                inputs: inputs.iter().map(shape).collect(),
                outputs: outputs.iter().map(shape).collect(),
            },
        },
        max_batch: model.max_batch,
        memory_mib: model.memory_mib,
        threads: 1,
    }
}

fn server(given: &config::Server, slo: Duration) -> Server {
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
        answer_timeout_ms: millis(SERVER_PATIENCE.max(slo * 2)),
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

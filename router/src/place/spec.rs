//! What an executor is told of a model.

use protocol::{Engine, ModelSpec, TensorShape};

use crate::config;

/// How `model` is loaded on a slice of `profile`.
pub(super) fn of(model: &config::Model, profile: &str) -> ModelSpec {
    ModelSpec {
        name: model.name.clone(),
        version: model.version.clone(),
        engine: match &model.engine {
            config::Engine::Onnx { path } => {
                // A worker may run in another directory.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                Engine::Onnx { path: path.display().to_string() }
            }
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

fn shape(spec: &oip::TensorSpec) -> TensorShape {
    TensorShape {
        name: spec.name.clone(),
        datatype: spec.datatype.name().to_owned(),
        shape: spec.shape.clone(),
    }
}

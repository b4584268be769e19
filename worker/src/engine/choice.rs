//! Which engine runs an ONNX model: ONNX Runtime where the worker found one, else rten.

use std::sync::Once;

use protocol::{Device, ModelSpec};

use super::{Engine, LoadError, onnx::Onnx, ort};
use crate::onnxruntime::OnnxRuntime;

pub(super) fn load(
    path: &str,
    spec: &ModelSpec,
    runtime: &OnnxRuntime,
) -> Result<Box<dyn Engine>, LoadError> {
    let threads = spec.threads.max(1);
    let why = match runtime {
        OnnxRuntime::Found { library, .. } => match ort::Loaded::of(library) {
            Ok(loaded) => {
                let wish = ort::Wish { device: spec.device, threads };
                return Ok(Box::new(ort::OnnxRuntime::load(loaded, path, wish)?));
            }
            Err(why) => why,
        },
        OnnxRuntime::Missing { why } => why.clone(),
    };
    if spec.device == Some(Device::Gpu) {
        return Err(LoadError::NoGpu { path: path.to_owned(), reason: why });
    }
    tell_once(&why);
    Ok(Box::new(Onnx::load(path, threads, &why)?))
}

fn tell_once(why: &str) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!(why, "onnxruntime not used; ONNX models run on the embedded engine, rten");
    });
}

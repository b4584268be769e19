//! Loading a model without serving it, to tell what it is: for `sluice check`.
//!
//! In a child process with limits of time and memory, since a graph may take gigabytes and the code
//! that reads it may be another's. The child loads it as an executor would, so that what is told is
//! what will be.

use std::{fs, path::Path, process::Command, time::Duration};

use protocol::{Engine, ModelSpec, Runtime, Shapes};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::{
    OnnxRuntime, child, engine::Surroundings, executor::try_out, onnxruntime::LIBRARY_PATH,
};

/// How long a model may take to load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory for a model beside the fourfold of its file.
const ROOM: u64 = 8 << 30;

/// What came of loading a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inspected {
    Loads(Box<Loads>),
    Fails { reason: String },
}

/// A model that loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loads {
    pub signature: Shapes,
    /// Why its requests do not share batches; absent if they do.
    pub unbatched: Option<String>,
    /// Whether it has dimensions of any size and nothing says at which it is warmed.
    pub cold: bool,
    /// What is said of each output that is not served.
    pub left_out: Vec<String>,
    pub runtime: Option<Runtime>,
}

/// Has `program` load the model of `spec` in a child of its own. `sees_gpus` is whether it may use
/// this machine's GPUs.
pub fn inspect(
    program: &Path,
    spec: &ModelSpec,
    onnxruntime: &OnnxRuntime,
    sees_gpus: bool,
) -> Inspected {
    let asked = serde_json::to_string(spec).map_err(|error| error.to_string());
    let fails = |reason: String| Inspected::Fails { reason };
    let asked = match asked {
        Ok(asked) => asked,
        Err(reason) => return fails(reason),
    };
    let mut command = Command::new(program);
    command.args(["executor", "--inspect", &asked]).args(onnxruntime.arguments());
    if let Some(path) = onnxruntime.library_path() {
        command.env(LIBRARY_PATH, path);
    }
    if !sees_gpus {
        command.env("CUDA_VISIBLE_DEVICES", "");
    }
    let said = match child::output(command, PATIENCE) {
        Ok(said) => said,
        Err(reason) => return fails(format!("loading it: {reason}")),
    };
    serde_json::from_slice(&said.stdout).unwrap_or_else(|_| {
        let last = said.stderr.lines().rfind(|line| !line.trim().is_empty());
        let last = last.map_or_else(String::new, |line| format!(": {line}"));
        fails(format!("loading it ended with {}{last}", said.status))
    })
}

/// The body of `sluice executor --inspect`: what to print.
pub fn run_inspect(asked: &str, around: &Surroundings) -> String {
    let inspected = match serde_json::from_str(asked) {
        Ok(spec) => limited(&spec, around),
        Err(error) => Inspected::Fails { reason: format!("cannot read the model: {error}") },
    };
    serde_json::to_string(&inspected).expect("text and numbers have a JSON form")
}

fn limited(spec: &ModelSpec, around: &Surroundings) -> Inspected {
    let limit = |resource, most| setrlimit(resource, Rlimit { current: most, maximum: most });
    let gpus = std::env::var_os("CUDA_VISIBLE_DEVICES").is_none_or(|devices| !devices.is_empty());
    // A GPU's driver maps far more than there is memory.
    let memory = if gpus { Resource::Data } else { Resource::As };
    let limits = limit(memory, Some(room(spec)))
        .and_then(|()| limit(Resource::Cpu, Some(PATIENCE.as_secs() * 64)))
        .and_then(|()| limit(Resource::Core, Some(0)));
    if let Err(error) = limits {
        return Inspected::Fails { reason: format!("cannot limit its memory: {error}") };
    }
    match try_out(spec, around) {
        Ok(engine) => {
            let signature = engine.signature();
            let told = !spec.warmup.is_empty() || spec.warmup_file.is_some();
            Inspected::Loads(Box::new(Loads {
                signature: signature.shapes(),
                unbatched: signature.unbatched(),
                cold: signature.has_free_dimensions() && !told,
                left_out: engine.left_out().to_vec(),
                runtime: engine.runtime(),
            }))
        }
        Err(reason) => Inspected::Fails { reason },
    }
}

fn room(spec: &ModelSpec) -> u64 {
    let Engine::Onnx { path } = &spec.engine else { return ROOM };
    let file = fs::metadata(path).map_or(0, |found| found.len());
    ROOM.saturating_add(file.saturating_mul(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_says_nothing_of_use_is_told_by_its_end() {
        let spec = ModelSpec {
            name: "m".into(),
            version: "1".into(),
            engine: Engine::Onnx { path: "m.onnx".into() },
            max_batch: 1,
            memory_mib: 0,
            threads: 1,
            device: None,
            warmup: Vec::new(),
            warmup_file: None,
            content: None,
        };
        let runtime = OnnxRuntime::Missing { why: "this is a test".into() };
        let Inspected::Fails { reason } = inspect(Path::new("false"), &spec, &runtime, false)
        else {
            panic!("false cannot load a model");
        };
        assert_eq!(reason, "loading it ended with exit status: 1");
    }
}

//! The models of a file, loaded as this machine's workers would load them.

use std::{collections::BTreeSet, fmt::Write, path::Path};

use config::{Config, Engine, Gpu, Model};
use protocol::TensorShape;
use serde::Serialize;
use worker::{Inspected, Loads, OnnxRuntime};

/// What came of loading one model.
#[derive(Debug, Serialize)]
pub(super) struct Loaded {
    model: String,
    /// Where the file names it.
    place: String,
    /// The most rows of a batch of it.
    max_batch: u32,
    #[serde(flatten)]
    inspected: Inspected,
}

/// Every model that has a file here, one after another.
pub(super) fn load(config: &Config) -> Result<Vec<Loaded>, String> {
    let here = |model: &&Model| matches!(&model.engine, Engine::Onnx { path } if path.is_file());
    let models: Vec<&Model> = config.models.iter().filter(here).collect();
    if models.is_empty() {
        return Ok(Vec::new());
    }
    let program = std::env::current_exe()
        .map_err(|error| format!("cannot find this program's path: {error}"))?;
    let keys: BTreeSet<Option<&Path>> =
        config.workers.iter().map(|worker| worker.onnxruntime.as_deref()).collect();
    let keys = if keys.is_empty() { BTreeSet::from([None]) } else { keys };
    // The GPUs of a router's workers are elsewhere, and may be like those here.
    let is_real = |gpu: &Gpu| matches!(gpu, Gpu::Nvml { .. });
    let sees_gpus =
        config.workers.is_empty() || config.workers.iter().any(|worker| is_real(&worker.gpu));
    let slices = config.workers.iter().filter_map(config::Worker::known_slices).flatten();
    let profile = slices.map(|slice| slice.profile).next().unwrap_or_default();
    let mut loaded = Vec::new();
    for key in keys {
        let onnxruntime = OnnxRuntime::find(key, &program);
        for model in &models {
            let spec = router::model_spec(model, &profile);
            loaded.push(Loaded {
                model: model.name.clone(),
                place: place(config, &model.name),
                max_batch: model.max_batch,
                inspected: worker::inspect(&program, &spec, &onnxruntime, sees_gpus),
            });
        }
    }
    Ok(loaded)
}

fn place(config: &Config, model: &str) -> String {
    let mut settings = config.effective.settings.iter();
    let path = settings.find(|setting| {
        setting.table == "model" && setting.item.as_deref() == Some(model) && setting.key == "path"
    });
    path.map_or_else(|| config.effective.file.clone(), |path| path.origin.to_string())
}

impl Loaded {
    /// What is wrong with it, if it does not load.
    pub(super) fn problem(&self) -> Option<String> {
        match &self.inspected {
            Inspected::Fails { reason } => {
                Some(format!("{}: model {:?}: {reason}", self.place, self.model))
            }
            Inspected::Loads(_) => None,
        }
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let Inspected::Loads(loads) = &self.inspected else { return Vec::new() };
        let Self { model, place, .. } = self;
        loads.left_out.iter().map(|said| format!("{place}: model {model:?}: {said}")).collect()
    }

    /// What it is, in a few lines; nothing if it does not load.
    pub(super) fn summary(&self) -> String {
        let Inspected::Loads(loads) = &self.inspected else { return String::new() };
        let Loads { signature, unbatched, cold, runtime, .. } = &**loads;
        let (takes, gives) = (tensors(&signature.inputs), tensors(&signature.outputs));
        let mut text = format!("{} takes {takes} and gives {gives}\n", self.model);
        match unbatched {
            None => {
                let _ = write!(text, "{} runs in batches to {}", self.model, self.max_batch);
            }
            Some(why) => {
                let _ = write!(text, "{} runs one request at a time, since {why};", self.model);
            }
        }
        if let Some(runtime) = runtime {
            let _ = write!(text, " on {runtime}");
        }
        if *cold {
            text += "; it is not warmed: its dimensions are free, and neither warmup nor \
                     warmup_file gives them";
        }
        text + "\n"
    }
}

fn tensors(all: &[TensorShape]) -> String {
    let one = |one: &TensorShape| format!("{} {} {:?}", one.name, one.datatype, one.shape);
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use protocol::{Device, Runtime, Shapes};

    use super::*;

    fn loaded(inspected: Inspected) -> Loaded {
        let (model, place) = ("digits".to_owned(), "sluice.toml:7".to_owned());
        Loaded { model, place, max_batch: 64, inspected }
    }

    #[test]
    fn a_model_that_does_not_batch_says_why_and_what_runs_it() {
        let tensor = |name: &str, shape: &[i64]| TensorShape {
            name: name.to_owned(),
            datatype: "FP32".to_owned(),
            shape: shape.to_vec(),
        };
        let inputs = vec![tensor("x", &[-1, -1])];
        let signature = Shapes { inputs, outputs: vec![tensor("y", &[1])] };
        let runtime = Runtime {
            name: "onnxruntime".to_owned(),
            version: Some("1.23.2".to_owned()),
            device: Device::Cpu,
            threads: 2,
            why: None,
        };
        let unbatched = Some("output \"y\" has the fixed first dimension 1".to_owned());
        let left_out = vec!["output \"z\" is left out".to_owned()];
        let loads = Loads { signature, unbatched, cold: true, left_out, runtime: Some(runtime) };
        let loaded = loaded(Inspected::Loads(Box::new(loads)));
        assert_eq!(
            loaded.summary(),
            "digits takes x FP32 [-1, -1] and gives y FP32 [1]\n\
             digits runs one request at a time, since output \"y\" has the fixed first dimension \
             1; on onnxruntime 1.23.2 on cpu, 2 threads; it is not warmed: its dimensions are \
             free, and neither warmup nor warmup_file gives them\n"
        );
        let warned = "sluice.toml:7: model \"digits\": output \"z\" is left out";
        assert_eq!((loaded.warnings(), loaded.problem()), (vec![warned.to_owned()], None));
    }

    #[test]
    fn a_model_that_does_not_load_is_a_problem_at_its_line() {
        let loaded = loaded(Inspected::Fails { reason: "it has no graph".to_owned() });
        let problem = "sluice.toml:7: model \"digits\": it has no graph";
        assert_eq!(loaded.problem().as_deref(), Some(problem));
        assert_eq!(loaded.summary(), "");
    }
}

//! Which replicas start where.

use std::time::Duration;

use policy::spread::{self, Want};
use protocol::{Engine, ModelSpec, Server, Shapes, TensorShape};
use router::config::{self, Config};
use worker::{Placement, SlicePlan};

/// The least time a server gets for a batch before it is taken to hang. One that is merely late
/// must not be ended for it, so it gets twice the objective where that is longer.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// Each model's least replicas, spread over the slices configured.
pub(crate) fn placement(config: &Config) -> Result<Placement, String> {
    let mut slices = Vec::new();
    let mut free_mib = Vec::new();
    for (gpu, worker) in config.workers.iter().enumerate() {
        for slice in &worker.slices {
            free_mib.push(slice.memory_mib);
            slices.push(SlicePlan {
                gpu,
                kind: worker.gpu.kind().to_owned(),
                position: slice.position.clone(),
                device: None,
                replicas: Vec::new(),
            });
        }
    }
    let want =
        |model: &config::Model| Want { memory_mib: model.memory_mib, replicas: model.replicas.min };
    let wants: Vec<Want> = config.models.iter().map(want).collect();
    let chosen = spread::spread(&free_mib, &wants).map_err(|none| {
        let (name, needs, free) =
            (&config.models[none.model].name, none.needs_mib, none.most_free_mib);
        format!("model {name:?} needs {needs} MiB a replica; no slice has more than {free} left")
    })?;
    let replicas = config
        .models
        .iter()
        .flat_map(|model| std::iter::repeat_n(model, model.replicas.min as usize));
    for (id, (model, slice)) in (1..).zip(replicas.zip(chosen)) {
        let profile = slices[slice].position.split('@').next().unwrap_or_default().to_owned();
        slices[slice].replicas.push((id, spec(model, &profile)));
    }
    slices.retain(|slice| !slice.replicas.is_empty());
    Ok(Placement { slices })
}

fn spec(model: &config::Model, profile: &str) -> ModelSpec {
    ModelSpec {
        name: model.name.clone(),
        version: model.version.clone(),
        engine: match &model.engine {
            config::Engine::Onnx { path } => Engine::Onnx { path: path.display().to_string() },
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
    let shapes = |signature: &oip::Signature| Shapes {
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

fn shape(spec: &oip::TensorSpec) -> TensorShape {
    TensorShape {
        name: spec.name.clone(),
        datatype: spec.datatype.name().to_owned(),
        shape: spec.shape.clone(),
    }
}

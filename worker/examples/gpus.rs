//! Says in JSON what the worker sees of this machine's GPUs, after reshaping one if asked to.
//!
//! `gpus [LIBRARY]` looks only; `gpus LIBRARY INDEX POSITION,POSITION,...` cuts GPU `INDEX` as
//! listed first, or into nothing if the list is empty. `LIBRARY` is a path or a name the loader
//! knows, such as `libnvidia-ml.so.1`. Reshaping needs root.

#![expect(clippy::print_stdout, reason = "a program for a terminal or a script")]

use std::{env, error::Error, path::Path};

use mig::{Geometry, Position};
use serde_json::{Value, json};
use worker::gpu::{
    Compute, Gpu, Sample, Slice, Survey,
    nvml::{Library, NvmlGpu},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (library, change) = match arguments.as_slice() {
        [] => (None, None),
        [library] => (Some(library), None),
        [library, index, positions] => (Some(library), Some((index.parse()?, positions))),
        _ => return Err("give nothing, LIBRARY, or LIBRARY INDEX POSITIONS".into()),
    };
    let library = Library::open(library.map(|path| Path::new(path.as_str())))?;
    let outcome = match change {
        Some((index, positions)) => reshape(&mut library.gpu(index)?, positions),
        None => Ok(()),
    };
    let mut gpus = Vec::new();
    for index in 0..library.count()? {
        let gpu = library.gpu(index)?;
        gpus.push(described(&gpu.survey()?, &gpu.sample()?));
    }
    println!("{}", Value::Array(gpus));
    outcome
}

fn reshape(gpu: &mut NvmlGpu, positions: &str) -> Result<(), Box<dyn Error>> {
    let kind = gpu.survey()?.kind.ok_or("this GPU is not in the MIG table")?;
    let listed = positions.split(',').filter(|text| !text.is_empty());
    let positions = listed.map(|text| kind.position(text)).collect::<Result<_, _>>()?;
    gpu.reshape(&Geometry::new(kind, positions)?).outcome?;
    Ok(())
}

fn described(survey: &Survey, sample: &Sample) -> Value {
    let texts = |positions: &[Position]| -> Vec<String> {
        positions.iter().map(Position::to_string).collect()
    };
    let room = survey.room.iter().map(|room| (room.profile.clone(), json!(room.count)));
    json!({
        "uuid": survey.uuid,
        "name": survey.name,
        "kind": survey.kind.map(|kind| &kind.name),
        "mode": format!("{:?}", survey.mode),
        "reset_pending": survey.reset_pending,
        "privileged": survey.privileged,
        "memory_bytes": survey.memory.map(|memory| memory.total_bytes),
        "slices": survey.slices.iter().map(slice).collect::<Vec<_>>(),
        "offered": texts(&survey.offered),
        "disagreements":
            survey.disagreements.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "room": Value::Object(room.collect()),
        "power_milliwatts": sample.power_milliwatts,
        "clock_mhz": sample.clock_mhz,
        "temperature_celsius": sample.temperature_celsius,
        "ecc": sample.ecc.map(|ecc| [ecc.corrected, ecc.uncorrected]),
    })
}

fn slice(slice: &Slice) -> Value {
    json!({
        "profile": slice.profile,
        "position": slice.position.map(|position| position.to_string()),
        "gpu_instance": slice.gpu_instance,
        "usable": slice.usable().is_some(),
        "compute": slice.compute.iter().map(compute).collect::<Vec<_>>(),
    })
}

fn compute(compute: &Compute) -> Value {
    let processes = compute.processes.as_ref();
    let pids = processes.map(|all| all.iter().map(|process| process.pid).collect::<Vec<_>>());
    json!({
        "uuid": compute.uuid,
        "compute_instance": compute.id,
        "memory_bytes": compute.memory.map(|memory| memory.total_bytes),
        "used_bytes": compute.memory.map(|memory| memory.used_bytes),
        "pids": pids,
    })
}

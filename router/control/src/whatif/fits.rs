//! Whether a configuration's models fit on its own GPUs, as far as the file alone can tell.

use std::collections::BTreeMap;

use config::{Config, Worker};
use policy::{
    moment::Moment,
    place::{Gpu, Slice, Snapshot, Target, place},
    plan::Rules,
    round::{Memory, ModelTerms},
};

use crate::world::{WORK, model_terms};

/// Places every model's least replicas on the GPUs of the file, or says which has no room.
///
/// With a GPU among them of which nothing is known before it is opened, that cannot be told.
pub fn fits(config: &Config) -> Result<(), String> {
    let known: Option<Vec<Gpu>> = config.workers.iter().map(gpu).collect();
    let Some(gpus) = known else { return Ok(()) };
    let terms: Vec<ModelTerms> = config.models.iter().map(model_terms).collect();
    let snapshot = Snapshot {
        models: Memory::new(Moment::default(), BTreeMap::new()).place.models(&terms),
        gpus,
        rules: Rules { work: WORK, ..config.planner.rules },
        pins: Vec::new(),
        consolidate: false,
        last: Target::default(),
    };
    let decision = place(&snapshot);
    let placed = |index: usize| decision.target.placed.iter().any(|placed| placed.model == index);
    for refusal in &decision.refusals {
        if let Some(index) = refusal.model.filter(|index| !placed(*index)) {
            return Err(format!("model {:?}: {}", config.models[index].name, refusal.why));
        }
    }
    Ok(())
}

fn gpu(worker: &Worker) -> Option<Gpu> {
    let config::Gpu::Simulated { kind } = &worker.gpu else { return None };
    let kind = mig::kind(kind).ok()?;
    let slice = |text: &String| {
        let position = kind.position(text).ok()?;
        Some(Slice { position, loaned: false, doomed: false, replicas: Vec::new() })
    };
    let slices = worker.geometry.iter().flatten().map(slice).collect::<Option<_>>()?;
    Some(Gpu { kind, healthy: true, cuttable: worker.geometry.is_none(), slices })
}

//! Whether a configuration's models fit on its own GPUs, as far as the file alone can tell.

use super::{ModelSeen, SliceSeen, Snapshot, decide};
use crate::config::Config;

/// Places every model's least replicas on the GPUs of the file, or says which has no room.
///
/// With a GPU among them of which nothing is known before it is opened, that cannot be told.
pub fn fits(config: &Config) -> Result<(), String> {
    let known = config.workers.iter().map(|worker| worker.known_slices());
    let Some(known) = known.collect::<Option<Vec<_>>>() else { return Ok(()) };
    let slices = known.iter().enumerate().flat_map(|(gpu, slices)| {
        slices.iter().map(move |slice| SliceSeen {
            gpu,
            memory_mib: slice.memory_mib,
            exists: true,
            stays: true,
            leaving: false,
            lent: false,
        })
    });
    let models = config
        .models
        .iter()
        .map(|model| ModelSeen { memory_mib: model.memory_mib, least: model.replicas.min });
    let snapshot =
        Snapshot { models: models.collect(), slices: slices.collect(), replicas: Vec::new() };
    match decide(&snapshot).unplaced.first() {
        None => Ok(()),
        Some((model, none)) => {
            let (name, needs, free) =
                (&config.models[*model].name, none.needs_mib, none.most_free_mib);
            Err(format!(
                "model {name:?} needs {needs} MiB a replica; no slice has more than {free} left"
            ))
        }
    }
}

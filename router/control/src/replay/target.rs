//! What the last decision aimed at, as JSON.

use policy::place::{Gpu, Leaving, Placed, Target};
use serde::{Deserialize, Serialize};

use super::{ReplayError, pin::place};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetView {
    placed: Vec<PlacedView>,
    leaving: Vec<LeavingView>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlacedView {
    gpu: usize,
    position: String,
    model: usize,
    replica: Option<u64>,
    batch: u32,
    processes: u32,
    capacity_rps: f64,
    serves_rps: f64,
    pinned: bool,
    why: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeavingView {
    replica: u64,
    serves_rps: f64,
    why: String,
}

impl From<&Target> for TargetView {
    fn from(target: &Target) -> Self {
        let placed = target.placed.iter().map(|one| PlacedView {
            gpu: one.gpu,
            position: one.position.to_string(),
            model: one.model,
            replica: one.replica,
            batch: one.batch,
            processes: one.processes,
            capacity_rps: one.capacity_rps,
            serves_rps: one.serves_rps,
            pinned: one.pinned,
            why: one.why.clone(),
        });
        let leaving = target.leaving.iter().map(|one| LeavingView {
            replica: one.replica,
            serves_rps: one.serves_rps,
            why: one.why.clone(),
        });
        Self { placed: placed.collect(), leaving: leaving.collect() }
    }
}

impl TargetView {
    pub(super) fn read(self, gpus: &[Gpu]) -> Result<Target, ReplayError> {
        let mut target = Target::default();
        for one in self.placed {
            let position = place(gpus, one.gpu, &one.position)?;
            let PlacedView { gpu, model, replica, batch, processes, .. } = one;
            let PlacedView { capacity_rps, serves_rps, pinned, why, .. } = one;
            target.placed.push(Placed {
                gpu,
                position,
                model,
                replica,
                batch,
                processes,
                capacity_rps,
                serves_rps,
                pinned,
                why,
            });
        }
        target.leaving = self
            .leaving
            .into_iter()
            .map(|LeavingView { replica, serves_rps, why }| Leaving { replica, serves_rps, why })
            .collect();
        Ok(target)
    }
}

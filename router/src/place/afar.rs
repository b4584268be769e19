//! How far orders are, as a router sees that does not plan: by what the workers report.

use super::ordered::{DrainPhase, DrainState, PinPhase, PinState};
use crate::{
    fleet::labelled,
    orders::{Drain, Pin, Standing},
    state::{ReplicaPhase, WorkerState},
};

/// How far a drain is.
pub(crate) fn drain(worker: &WorkerState, drain: &Drain) -> DrainState {
    let slices = worker.gpus.iter().flat_map(|gpu| &gpu.slices);
    let held = slices.filter(|slice| !slice.replicas.is_empty() || slice.job.is_some());
    let holds: Vec<String> = held.map(|slice| format!("something is on {}", slice.slice)).collect();
    let state = if holds.is_empty() { DrainPhase::Drained } else { DrainPhase::Draining };
    DrainState { by: drain.by.clone(), since_ms: drain.since_ms, state, holds }
}

/// How far pins are.
pub(crate) fn pins(standing: &Standing, workers: &[WorkerState]) -> Vec<PinState> {
    let state = |pin: &Pin| {
        if is_held(pin, workers) {
            return PinState::new(pin, PinPhase::Held, None);
        }
        PinState::new(pin, PinPhase::Waiting, Some("the router that leads knows why"))
    };
    standing.pins.iter().map(state).collect()
}

fn is_held(pin: &Pin, workers: &[WorkerState]) -> bool {
    let gpu = labelled(&pin.at.worker, &format!("gpu{}", pin.at.gpu));
    let gpus = workers.iter().flat_map(|worker| &worker.gpus).filter(|one| one.gpu == gpu);
    let slices = gpus.flat_map(|gpu| &gpu.slices).filter(|one| one.position == pin.at.position);
    let mut replicas = slices.flat_map(|slice| &slice.replicas);
    replicas.any(|one| one.model == pin.model && one.state == ReplicaPhase::Ready)
}

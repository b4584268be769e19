//! How far drains and pins are by what the workers report, at a router that doesn't lead.

use std::collections::BTreeMap;

use policy::fleet::{GpuId, SliceId};
use protocol::ReplicaState;

use super::{DrainPhase, DrainState, PinPhase, PinState};
use crate::{
    fleet::{View, labelled},
    orders::{Drain, Pin, StandingOrders},
};

/// How far a drain is; `lent` has the job of each slice that is lent.
pub fn drain(worker: &View, lent: &BTreeMap<SliceId, u64>, drain: &Drain) -> DrainState {
    let mut holds = Vec::new();
    for gpu in worker.report.iter().flat_map(|report| &report.gpus) {
        let id = GpuId { worker: worker.name.clone(), gpu: gpu.index };
        for slice in &gpu.slices {
            if !slice.replicas.is_empty() || lent.contains_key(&id.slice(&*slice.position)) {
                holds.push(format!("something is on {}", labelled(&worker.name, &slice.slice)));
            }
        }
    }
    let state = if holds.is_empty() { DrainPhase::Drained } else { DrainPhase::Draining };
    DrainState { by: drain.by.clone(), since_ms: drain.since_ms, state, holds }
}

pub fn pins(standing: &StandingOrders, workers: &[View]) -> Vec<PinState> {
    let state = |pin: &Pin| {
        if is_held(pin, workers) {
            return PinState::new(pin, PinPhase::Held, None);
        }
        PinState::new(pin, PinPhase::Waiting, Some("ask the leader for the reason"))
    };
    standing.pins.iter().map(state).collect()
}

fn is_held(pin: &Pin, workers: &[View]) -> bool {
    let reports = workers.iter().filter(|worker| worker.name == pin.at.worker);
    let gpus = reports.filter_map(|worker| worker.report.as_ref()).flat_map(|report| &report.gpus);
    let slices = gpus.filter(|gpu| gpu.index == pin.at.gpu).flat_map(|gpu| &gpu.slices);
    let here = slices.filter(|slice| slice.position == pin.at.position);
    let mut replicas = here.flat_map(|slice| &slice.replicas);
    let ready = |state: &ReplicaState| matches!(state, ReplicaState::Ready(_));
    replicas.any(|one| one.model == pin.model && ready(&one.state))
}

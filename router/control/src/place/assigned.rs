//! What was asked of the workers.

use std::collections::BTreeMap;

use protocol::{Desired, ModelSpec, ReplicaState, Report};

/// What was asked of one worker.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    pub(super) replicas: Vec<Assigned>,
    pub(super) sent: Option<Desired>,
}

/// One process of a replica that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Assigned {
    pub(super) id: u32,
    /// The number that all processes of the replica share.
    pub(super) group: u64,
    pub(super) model: String,
    pub(super) gpu: u32,
    pub(super) position: String,
    pub(super) lane: u32,
    pub(super) digest: u64,
    /// Absent if it was found running and is of no model as now configured.
    pub(super) spec: Option<ModelSpec>,
    /// Routers may give it batches.
    pub(super) serves: bool,
    /// It goes once it has no batches.
    pub(super) leaving: bool,
}

impl Assigned {
    /// Whether it is of its model as now configured; `wanted` is how that would be loaded here.
    ///
    /// One that takes larger batches than are asked for now serves as well.
    pub(super) fn is_current(&mut self, wanted: &ModelSpec) -> bool {
        match &self.spec {
            Some(spec) => {
                let alike = ModelSpec { max_batch: spec.max_batch, ..wanted.clone() };
                alike == *spec && spec.max_batch >= wanted.max_batch
            }
            None => {
                let same = self.digest == wanted.digest();
                if same {
                    self.spec = Some(wanted.clone());
                }
                same
            }
        }
    }
}

/// The replicas that a worker has when a router first hears of it; `groups` are given out from there.
pub(super) fn found(report: &Report, groups: &mut u64) -> Vec<Assigned> {
    let alive = |state: &ReplicaState| match state {
        ReplicaState::Draining | ReplicaState::Failed { .. } => false,
        ReplicaState::Starting
        | ReplicaState::Loading
        | ReplicaState::Warming { .. }
        | ReplicaState::Ready(_) => true,
    };
    let mut replicas = Vec::new();
    for gpu in &report.gpus {
        for slice in &gpu.slices {
            let mut known: BTreeMap<(&str, u64), u64> = BTreeMap::new();
            for one in slice.replicas.iter().filter(|one| alive(&one.state)) {
                let group = known.entry((&one.model, one.digest)).or_insert_with(|| {
                    *groups += 1;
                    *groups
                });
                replicas.push(Assigned {
                    id: one.replica,
                    group: *group,
                    model: one.model.clone(),
                    gpu: gpu.index,
                    position: slice.position.clone(),
                    lane: one.lane,
                    digest: one.digest,
                    spec: None,
                    serves: one.serves,
                    leaving: false,
                });
            }
        }
    }
    replicas
}

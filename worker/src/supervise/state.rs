//! What is known of one slice.

use mig::Position;
use protocol::{Notice, ReadyReplica, ReplicaReport, ReplicaState, Report};

use super::SlicePlan;

/// A slice, its executor and its replicas, as far as the executor has said.
#[derive(Debug)]
pub(super) struct State {
    report: Report,
    token: String,
    address: Option<String>,
}

impl State {
    /// Before the first start.
    pub(super) fn new(plan: &SlicePlan, position: Position) -> Self {
        let replica = |(replica, spec): &(u32, protocol::ModelSpec)| ReplicaReport {
            replica: *replica,
            model: spec.name.clone(),
            version: spec.version.clone(),
            state: ReplicaState::Starting,
        };
        let report = Report {
            slice: mig::slice_label(plan.gpu, position),
            profile: position.profile().name.clone(),
            pid: None,
            restarts: 0,
            replicas: plan.replicas.iter().map(replica).collect(),
        };
        Self { report, token: String::new(), address: None }
    }

    pub(super) fn report(&self) -> &Report {
        &self.report
    }

    pub(super) fn slice(&self) -> &str {
        &self.report.slice
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn is_listening(&self) -> bool {
        self.address.is_some()
    }

    /// A new executor runs, and expects `token`.
    pub(super) fn started(&mut self, pid: Option<u32>, token: String) {
        self.report.pid = pid;
        self.token = token;
        self.address = None;
        self.set_all(&ReplicaState::Starting);
    }

    /// The executor is gone.
    pub(super) fn ended(&mut self, reason: &str) {
        self.report.pid = None;
        self.report.restarts = self.report.restarts.saturating_add(1);
        self.address = None;
        self.set_all(&ReplicaState::Failed { reason: reason.to_owned() });
    }

    /// The executor said something.
    pub(super) fn hear(&mut self, notice: Notice) {
        match notice {
            Notice::Listening { address } => self.address = Some(address),
            Notice::Loading { replica } => self.set(replica, ReplicaState::Loading),
            Notice::Warming { replica, batch } => {
                self.set(replica, ReplicaState::Warming { batch });
            }
            Notice::Ready {
                replica,
                signature,
                platform,
                max_batch,
                warmup,
                load_us,
                memory_bytes,
            } => {
                let Some(address) = self.address.clone() else {
                    tracing::warn!(replica, "replica ready before its executor listened; ignored");
                    return;
                };
                let token = self.token.clone();
                let ready = ReadyReplica {
                    address,
                    token,
                    signature,
                    platform,
                    max_batch,
                    warmup,
                    load_us,
                    memory_bytes,
                };
                self.set(replica, ReplicaState::Ready(Box::new(ready)));
            }
            Notice::Failed { replica, reason } => {
                self.set(replica, ReplicaState::Failed { reason });
            }
            Notice::Lost { replica, reason } => self.set(replica, ReplicaState::Lost { reason }),
            Notice::Unloaded { replica } => {
                self.set(replica, ReplicaState::Failed { reason: "unloaded".to_owned() });
            }
        }
    }

    fn set(&mut self, id: u32, state: ReplicaState) {
        match self.report.replicas.iter_mut().find(|replica| replica.replica == id) {
            Some(replica) => replica.state = state,
            None => tracing::warn!(replica = id, "notice of a replica that is not here; ignored"),
        }
    }

    fn set_all(&mut self, state: &ReplicaState) {
        for replica in &mut self.report.replicas {
            replica.state = state.clone();
        }
    }
}

//! What a worker tells the router of its replicas.

use serde::{Deserialize, Serialize};

use crate::control::{Shapes, WarmPoint};

/// Every replica of one slice as it is now; it replaces the slice's last report whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The slice's label, `gpu0:3g@4`.
    pub slice: String,
    /// The slice's MIG profile, `3g.40gb`.
    pub profile: String,
    /// The executor's process id, while there is one.
    pub pid: Option<u32>,
    /// How often the executor was started again.
    pub restarts: u32,
    /// The replicas the slice should have, each with its state.
    pub replicas: Vec<ReplicaReport>,
}

/// One replica as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// The replica's id.
    pub replica: u32,
    /// Its model's name.
    pub model: String,
    /// Its model's version.
    pub version: String,
    /// Its state.
    pub state: ReplicaState,
}

/// The states of a replica; batches may be sent to a ready one only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ReplicaState {
    /// Its executor is starting.
    Starting,
    /// Its model is being loaded.
    Loading,
    /// Its model is being run to warm it.
    Warming {
        /// The batch size it is being run at.
        batch: u32,
    },
    /// Batches may be sent.
    Ready(Box<ReadyReplica>),
    /// What runs its model is gone, and its executor will have it again in a while.
    Lost {
        /// For people.
        reason: String,
    },
    /// It cannot serve until its executor is started again, or ever.
    Failed {
        /// For people.
        reason: String,
    },
}

/// What a router needs to use a ready replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadyReplica {
    /// Where its executor listens: `unix:/path` or `tcp:127.0.0.1:port`.
    pub address: String,
    /// What its executor wants to hear in a hello.
    pub token: String,
    /// What the model takes and gives.
    pub signature: Shapes,
    /// What runs the model, for its metadata.
    pub platform: String,
    /// The most rows a batch may have.
    pub max_batch: u32,
    /// How long batches took while warming.
    pub warmup: Vec<WarmPoint>,
    /// Microseconds the model took to load.
    pub load_us: u64,
    /// Memory the model takes, as far as the executor can tell.
    pub memory_bytes: u64,
}

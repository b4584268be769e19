//! What a worker tells the router: everything there is, each time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    model::{Runtime, Shapes, WarmPoint},
    rank::RankReport,
};

/// The position of a GPU that is not cut, which is one slice.
pub const WHOLE: &str = "whole";

/// Everything on one worker as it is now; it replaces the worker's last report whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The highest term of a leader it has heard of.
    pub term: u64,
    /// The generation of the desired state that every GPU acts on; 0 before the first.
    pub generation: u64,
    /// Whether it is about to stop, and waits only for its replicas to be drained.
    pub leaving: bool,
    /// Whether it runs jobs.
    pub lends: bool,
    /// Where other machines reach it, if they can.
    pub address: Option<std::net::IpAddr>,
    pub gpus: Vec<GpuReport>,
}

/// One GPU. What it does not say is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuReport {
    pub index: u32,
    /// As the worker's file has it, `nvml:0`.
    pub source: String,
    /// Its kind in the MIG table.
    pub kind: Option<String>,
    pub uuid: Option<String>,
    /// Whether it is cut; absent if nothing can be read of it.
    pub mode: Option<Mode>,
    pub can_reshape: bool,
    /// The positions its operator wants, if its file lists them.
    pub pinned: Option<Vec<String>>,
    /// Why it cannot be read, or is not as wanted.
    pub problem: Option<String>,
    pub xids: Vec<XidReport>,
    /// Corrected and uncorrected errors of memory since the driver was loaded.
    pub ecc: Option<(u64, u64)>,
    /// Memory, all and taken.
    pub memory_bytes: Option<(u64, u64)>,
    pub power_milliwatts: Option<u32>,
    pub clock_mhz: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub slices: Vec<SliceReport>,
}

impl GpuReport {
    /// Whether it does not exist, as its source says.
    pub fn is_simulated(&self) -> bool {
        self.source.starts_with("simulated:")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Unsupported,
    Off,
    On,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidReport {
    pub code: u64,
    /// The GPU instance it struck, if one alone.
    pub gpu_instance: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SliceReport {
    /// Its label, `gpu0:3g@4`.
    pub slice: String,
    /// Its position, `3g.40gb@4`, or [`WHOLE`].
    pub position: String,
    /// Its profile, `3g.40gb`; that of all of the GPU if it is not cut.
    pub profile: String,
    /// Its device's UUID; absent if it cannot be used.
    pub uuid: Option<String>,
    pub memory_bytes: Option<u64>,
    /// Its processes, by lane.
    pub lanes: Vec<LaneReport>,
    pub replicas: Vec<ReplicaReport>,
    pub rank: Option<RankReport>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LaneReport {
    pub lane: u32,
    pub pid: Option<u32>,
    pub restarts: u32,
    /// Microseconds it has run batches since it started, measured by itself.
    pub busy_us: u64,
    /// Whether it runs an earlier program than its worker, and should be replaced by one that does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aged: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaReport {
    pub replica: u32,
    pub model: String,
    pub version: String,
    /// The [digest](crate::ModelSpec::digest) of what was loaded.
    pub digest: u64,
    pub lane: u32,
    /// Whether routers may give it batches, as the leader last said.
    pub serves: bool,
    pub state: ReplicaState,
}

/// The states of a replica; batches may be sent to a ready one only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    Starting,
    Loading,
    Warming {
        batch: u32,
    },
    /// Batches may be sent.
    Ready(Box<ReadyReplica>),
    /// It finishes the batches it has, and goes.
    Draining,
    Failed {
        reason: String,
        /// Whether what runs it is gone, so that the model itself may be sound.
        crashed: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadyReplica {
    /// Where its executor listens: `unix:/path`, `tcp:127.0.0.1:port`, or `tls:` for the same
    /// behind a certificate of that address.
    pub address: String,
    /// What its executor wants to hear in a hello.
    pub token: String,
    pub signature: Shapes,
    pub platform: String,
    /// The most rows a batch may have: as asked, or 1 if the model does not batch.
    pub max_batch: u32,
    pub warmup: Vec<WarmPoint>,
    pub load_us: u64,
    /// Memory the model takes, as far as the executor can tell.
    pub memory_bytes: u64,
    /// What was measured at each shape it was warmed at, of a model of free dimensions; the first
    /// shape's measurements are also its `warmup`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<WarmShape>,
    /// What runs it, if it is an ONNX model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
}

/// What batches of one shape took when the model was warmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmShape {
    /// The dimensions of each input, without the batch.
    pub inputs: BTreeMap<String, Vec<u64>>,
    /// Rows and the microseconds in the model they took, the median of the runs.
    pub points: Vec<(u32, u64)>,
}

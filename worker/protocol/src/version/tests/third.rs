//! The messages in JSON as fbffd85, which speaks version 3, declares them. A record: it does not change.

#![allow(dead_code, reason = "a record of another program")]

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    Load { replica: u32, digest: u64, spec: Box<ModelSpec> },
    Unload { replica: u32 },
    Pace { factor: f64 },
    Stop,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Notice {
    State(Box<ExecutorState>),
    Busy { busy_us: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seat {
    pub(super) gpu: u32,
    pub(super) position: String,
    pub(super) lane: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecutorState {
    pub(super) version: u16,
    pub(super) seat: Seat,
    pub(super) slice: String,
    pub(super) pid: u32,
    pub(super) device: Option<String>,
    pub(super) busy_us: u64,
    pub(super) replicas: Vec<LoadedReplica>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadedReplica {
    pub(super) replica: u32,
    pub(super) model: String,
    pub(super) version: String,
    pub(super) memory_mib: u64,
    pub(super) digest: u64,
    pub(super) state: ReplicaState,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelSpec {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) engine: Engine,
    pub(super) max_batch: u32,
    pub(super) memory_mib: u64,
    pub(super) threads: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Engine {
    Onnx {
        path: String,
    },
    Server(Box<Server>),
    Synthetic {
        curve: Vec<(u32, f64)>,
        noise: f64,
        inputs: Vec<TensorShape>,
        outputs: Vec<TensorShape>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub(super) command: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) directory: Option<String>,
    pub(super) served_name: String,
    pub(super) ready_timeout_ms: u64,
    pub(super) answer_timeout_ms: u64,
    pub(super) signature: Option<Shapes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shapes {
    pub(super) inputs: Vec<TensorShape>,
    pub(super) outputs: Vec<TensorShape>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TensorShape {
    pub(super) name: String,
    pub(super) datatype: String,
    pub(super) shape: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WarmPoint {
    pub(super) batch: u32,
    pub(super) compute_us: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    pub(super) term: u64,
    pub(super) generation: u64,
    pub(super) leaving: bool,
    pub(super) lends: bool,
    pub(super) address: Option<IpAddr>,
    pub(super) gpus: Vec<GpuReport>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GpuReport {
    pub(super) index: u32,
    pub(super) source: String,
    pub(super) kind: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) mode: Option<Mode>,
    pub(super) can_reshape: bool,
    pub(super) pinned: Option<Vec<String>>,
    pub(super) problem: Option<String>,
    pub(super) xids: Vec<XidReport>,
    pub(super) ecc: Option<(u64, u64)>,
    pub(super) memory_bytes: Option<(u64, u64)>,
    pub(super) power_milliwatts: Option<u32>,
    pub(super) clock_mhz: Option<u32>,
    pub(super) temperature_celsius: Option<u32>,
    pub(super) slices: Vec<SliceReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    Unsupported,
    Off,
    On,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct XidReport {
    pub(super) code: u64,
    pub(super) gpu_instance: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SliceReport {
    pub(super) slice: String,
    pub(super) position: String,
    pub(super) profile: String,
    pub(super) uuid: Option<String>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) lanes: Vec<LaneReport>,
    pub(super) replicas: Vec<ReplicaReport>,
    pub(super) rank: Option<RankReport>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaneReport {
    pub(super) lane: u32,
    pub(super) pid: Option<u32>,
    pub(super) restarts: u32,
    pub(super) busy_us: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplicaReport {
    pub(super) replica: u32,
    pub(super) model: String,
    pub(super) version: String,
    pub(super) digest: u64,
    pub(super) lane: u32,
    pub(super) serves: bool,
    pub(super) state: ReplicaState,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ReplicaState {
    Starting,
    Loading,
    Warming { batch: u32 },
    Ready(Box<ReadyReplica>),
    Draining,
    Failed { reason: String, crashed: bool },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadyReplica {
    pub(super) address: String,
    pub(super) token: String,
    pub(super) signature: Shapes,
    pub(super) platform: String,
    pub(super) max_batch: u32,
    pub(super) warmup: Vec<WarmPoint>,
    pub(super) load_us: u64,
    pub(super) memory_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DesiredRank {
    pub(super) spec: RankSpec,
    pub(super) stop: Option<Stop>,
    pub(super) duty: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    pub(super) notice_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RankSpec {
    pub(super) job: u64,
    pub(super) run: u32,
    pub(super) rank: u32,
    pub(super) world_size: u32,
    pub(super) local_rank: u32,
    pub(super) local_world_size: u32,
    pub(super) master_address: String,
    pub(super) master_port: u16,
    pub(super) argv: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) notice_ms: u64,
    pub(super) lease_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RankReport {
    pub(super) job: u64,
    pub(super) run: u32,
    pub(super) rank: u32,
    pub(super) state: RankState,
    pub(super) progress: Option<RankProgress>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RankState {
    #[default]
    Starting,
    Running {
        pid: u32,
    },
    Checkpointing,
    Stopping,
    Ended(RankEnd),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RankEnd {
    Exited { code: i32 },
    Killed { signal: i32, overdue: bool },
    Exceeded { what: String },
    Expired,
    Lost { reason: String },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RankProgress {
    pub(super) step: u64,
    pub(super) steps: Option<u64>,
    pub(super) checkpoint: Option<u64>,
    pub(super) checkpoint_age_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RankOrder {
    Stop(Stop),
    Duty(u8),
    Renewed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogPiece {
    pub(super) from: u64,
    pub(super) text: String,
    pub(super) next: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromWorker {
    Join { version: u16, token: String, worker: String },
    Report(Box<Report>),
    Log { question: u64, piece: Option<LogPiece> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToWorker {
    Welcome { version: u16 },
    Refused { reason: String },
    Desired(Box<Desired>),
    ReadLog { question: u64, job: u64, rank: u32, from: Option<u64>, most: u32 },
    Still,
    Lead { term: u64 },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Desired {
    pub(super) term: u64,
    pub(super) generation: u64,
    pub(super) gpus: Vec<DesiredGpu>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DesiredGpu {
    pub(super) gpu: u32,
    pub(super) positions: Option<Vec<String>>,
    pub(super) slices: Vec<DesiredSlice>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DesiredSlice {
    pub(super) position: String,
    pub(super) replicas: Vec<DesiredReplica>,
    pub(super) rank: Option<Box<DesiredRank>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DesiredReplica {
    pub(super) replica: u32,
    pub(super) lane: u32,
    pub(super) digest: u64,
    pub(super) spec: Option<ModelSpec>,
    pub(super) serves: bool,
}

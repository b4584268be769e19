//! What workers report, without the secrets of their executors.

use serde::{Deserialize, Serialize};

use crate::{fleet::Presence, progress::DrainState};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerState {
    pub name: String,
    pub state: Presence,
    /// Seconds since its last report, or since it joined.
    pub silent_s: f64,
    /// Whether it is about to stop, and waits only for its replicas to be drained.
    pub leaving: bool,
    /// How far it is drained, if an operator wants that.
    #[serde(default)]
    pub drain: Option<DrainState>,
    /// The generation of the desired state it acts on, once it has reported.
    pub generation: Option<u64>,
    pub desired_generation: Option<u64>,
    pub gpus: Vec<GpuState>,
}

/// One GPU, cut or whole. What it does not say is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuState {
    /// Its name in labels: `gpu0`, behind its worker's name where that is another process.
    pub gpu: String,
    /// As the worker's file has it, `nvml:0`.
    pub source: String,
    /// Whether it does not exist: its power, heat and speed are a model's.
    #[serde(default)]
    pub simulated: bool,
    /// Its kind in the MIG table, `A100-80GB`; of cores, `cpu-4-8192MiB`.
    pub kind: Option<String>,
    pub uuid: Option<String>,
    /// Whether it is cut: `on`, `off` or `unsupported`.
    pub mode: Option<protocol::Mode>,
    pub can_reshape: bool,
    /// Why it cannot be read, or is not as wanted.
    pub problem: Option<String>,
    /// Memory slices it has; positions count these. 1 if it cannot be cut.
    pub memory_slices: u8,
    pub memory: Option<Memory>,
    pub power_w: Option<f64>,
    pub clock_mhz: Option<u32>,
    pub temperature_c: Option<u32>,
    /// Corrected and uncorrected errors of memory since the driver was loaded.
    pub ecc: Option<(u64, u64)>,
    /// The numbers of its last errors, oldest first.
    pub xids: Vec<u64>,
    pub slices: Vec<SliceState>,
}

impl GpuState {
    /// What it is, in a few words.
    pub fn what(&self) -> String {
        if let Some(cores) = self.source.strip_prefix("cpu:") {
            return format!("cores {cores}");
        }
        let kind = self.kind.as_deref().unwrap_or(&self.source);
        if self.simulated { format!("{kind} (simulated)") } else { kind.to_owned() }
    }

    /// The word before the colon of its source: `simulated`, `nvml` or `cpu`.
    pub fn source_word(&self) -> &str {
        self.source.split(':').next().unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub total_bytes: u64,
    pub used_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SliceState {
    /// Its label, `gpu0:3g@4`, behind its worker's name where that is another process.
    pub slice: String,
    /// Its position, `3g.40gb@4`, or `whole`.
    pub position: String,
    /// Its profile, `3g.40gb`.
    pub profile: String,
    /// Its device's UUID, which is another after every recut.
    pub uuid: Option<String>,
    pub start: u8,
    pub memory_slices: u8,
    pub memory_bytes: Option<u64>,
    pub lanes: Vec<LaneState>,
    pub replicas: Vec<ReplicaState>,
    pub job: Option<u64>,
    /// The rank of a training job it is lent to.
    #[serde(default)]
    pub rank: Option<RankView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankView {
    pub job: u64,
    pub run: u32,
    pub rank: u32,
    /// `starting`, `running`, `checkpointing`, `stopping` or `ended`.
    pub state: String,
}

impl SliceState {
    /// Seconds its processes have run batches.
    pub fn busy_s(&self) -> f64 {
        self.lanes.iter().map(|lane| lane.busy_s).sum()
    }

    /// Memory its replicas take, as far as their executors can tell.
    pub fn used_bytes(&self) -> u64 {
        self.replicas.iter().filter_map(|replica| replica.memory_bytes).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneState {
    /// Which, from 0.
    pub lane: u32,
    /// Its process id, while there is one.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u32,
    /// Seconds it has run batches since it started, measured by itself.
    pub busy_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaState {
    /// Its id, unique on its worker.
    pub replica: u32,
    /// Its model.
    pub model: String,
    pub version: String,
    pub lane: u32,
    pub state: ReplicaPhase,
    pub reason: Option<String>,
    /// Memory it takes, once known.
    pub memory_bytes: Option<u64>,
    pub load_ms: Option<f64>,
    /// What runs it and on what, of an ONNX model that is ready: `onnxruntime 1.23.2 on cpu, 1
    /// thread`.
    #[serde(default)]
    pub runtime: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaPhase {
    Starting,
    Loading,
    Warming,
    Ready,
    Draining,
    Failed,
}

//! Names for the parts of a fleet, and what the two planes say to each other about them.

use std::{collections::BTreeMap, fmt, time::Duration};

use mig::Kind;
use serde::{Deserialize, Serialize};

/// The name of the worker in the router's own process.
pub const LOCAL: &str = "local";

/// A slice: `WORKER/gpuINDEX/POSITION`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SliceId {
    pub worker: String,
    pub gpu: u32,
    /// The slice's position, as the worker calls it.
    pub position: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GpuId {
    pub worker: String,
    pub gpu: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId {
    pub worker: String,
    pub replica: u32,
}

/// What metrics and people call a slice: `gpu0:3g.40gb@4`, with the worker in front unless local.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SliceName(pub String);

/// Which devices something runs on, where the fleet has both kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Home {
    #[default]
    Any,
    /// Cores of a machine, not GPUs.
    Cores,
    Gpus,
}

impl Home {
    pub fn suits(self, kind: &Kind) -> bool {
        self.takes(kind.is_cores())
    }

    pub fn takes(self, cores: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Cores => cores,
            Self::Gpus => !cores,
        }
    }

    /// The same where one of `kinds` suits, else any of them.
    pub fn among<'k>(self, mut kinds: impl Iterator<Item = &'k Kind>) -> Self {
        if kinds.any(|kind| self.suits(kind)) { self } else { Self::Any }
    }
}

/// The connection to one process of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It cannot be sent batches yet, or for the moment.
    Connecting,
    /// It can be sent batches once it is admitted.
    Connected,
    InRotation {
        /// Whether it has any now.
        busy: bool,
    },
    Draining {
        /// Whether it still has some.
        busy: bool,
    },
}

/// What clients of a model without replicas are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    pub absent: Absent,
    /// How long a replica takes to load; absent, what was said before stands.
    pub loads_in: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    Loading(Wait),
    /// It is scaled to zero until the next request.
    Asleep,
    /// The fleet has no room for it.
    Unplaced {
        why: String,
    },
    Failed {
        why: String,
        /// Whether waiting may help.
        returns: bool,
    },
}

/// What a model that should have a ready replica waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No worker is connected.
    NoWorker,
    /// Workers are, and no GPU of theirs can be used.
    NoGpu,
    /// Every worker is drained or leaving.
    Drained,
    /// Its executor on this slice was ready, and cannot be reached.
    Silent(SliceName),
    /// A replica is being loaded on this slice.
    Loading(SliceName),
    /// The GPU of the slice that it is to be on is being reshaped.
    Reshaping(GpuId),
    /// Nothing was decided yet.
    Unplaced,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWorker => f.write_str(
                "no worker is connected; a `sluice worker` joins at join_listen of [router]",
            ),
            Self::NoGpu => f.write_str("no worker has a GPU that works; `sluice status` says why"),
            Self::Drained => f.write_str(
                "every worker is drained or leaving; `sluice return` puts a drained one back",
            ),
            Self::Silent(SliceName(slice)) => write!(
                f,
                "the executor of {slice} does not answer; its worker replaces it after 10 s"
            ),
            Self::Loading(SliceName(slice)) => write!(f, "a replica is loading on {slice}"),
            Self::Reshaping(gpu) => write!(f, "GPU {gpu} is being reshaped for a replica"),
            Self::Unplaced => f.write_str("the planner has not placed a replica yet"),
        }
    }
}

/// A model's requests since a router started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    pub arrived: u64,
    /// Of those, the ones that did not get it in time.
    pub late: u64,
    pub eligible: u64,
    /// Of those, the ones within it.
    pub within: u64,
    pub waiting: u64,
    /// Rows of an average request. At least 1.
    pub rows_per_request: f64,
    /// By slice, how many times as long as measured batches take there.
    pub slowdown: BTreeMap<SliceName, f64>,
}

impl SliceId {
    /// The GPU it is a part of.
    pub fn gpu_id(&self) -> GpuId {
        GpuId { worker: self.worker.clone(), gpu: self.gpu }
    }
}

impl GpuId {
    /// The slice of this GPU at `position`.
    pub fn slice(&self, position: impl Into<String>) -> SliceId {
        SliceId { worker: self.worker.clone(), gpu: self.gpu, position: position.into() }
    }
}

impl SliceName {
    /// The name of what `worker` calls `label`.
    pub fn of(worker: &str, label: &str) -> Self {
        Self(if worker == LOCAL { label.to_owned() } else { format!("{worker}:{label}") })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SliceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, gpu, position } = self;
        write!(f, "{worker}/gpu{gpu}/{position}")
    }
}

impl fmt::Display for GpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/gpu{}", self.worker, self.gpu)
    }
}

impl fmt::Display for SliceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Link {
    /// Whether it can be sent batches now, or could if it were admitted.
    pub fn is_connected(self) -> bool {
        match self {
            Self::Connecting => false,
            Self::Connected | Self::InRotation { .. } | Self::Draining { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_stored_by_worker_gpu_and_position() {
        let text = r#"{"worker":"w","gpu":1,"position":"3g.40gb@4"}"#;
        let slice = GpuId { worker: "w".into(), gpu: 1 }.slice("3g.40gb@4");
        assert_eq!(serde_json::to_string(&slice).unwrap(), text);
        assert_eq!(serde_json::from_str::<SliceId>(text).unwrap(), slice);
    }

    #[test]
    fn names_of_local_slices_leave_out_the_worker() {
        assert_eq!(SliceName::of(LOCAL, "gpu0:whole").as_str(), "gpu0:whole");
        assert_eq!(SliceName::of("w", "gpu0:whole").as_str(), "w:gpu0:whole");
        let gpu = GpuId { worker: "w".into(), gpu: 2 };
        assert_eq!(gpu.slice("whole").to_string(), "w/gpu2/whole");
    }
}

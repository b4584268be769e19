//! What a plan says, and why there may be none.

use std::fmt;

use mig::Position;

use super::search;

#[derive(Clone, Debug, PartialEq)]
pub struct Replica {
    pub model: usize,
    pub batch: u32,
    pub processes: u32,
    pub capacity_rps: f64,
    pub latency_ms: f64,
    /// The longest a request should take: waiting for what runs, then its own batch.
    pub worst_ms: f64,
    /// How many times as long as measured it was planned to take.
    pub slowdown: f64,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub gpu: usize,
    pub kind: &'static str,
    pub position: Position,
    pub replicas: Vec<Replica>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub slices: Vec<Slice>,
    pub gpus_used: u32,
    /// No plan that keeps the same rules uses fewer.
    pub bound_gpus: f64,
    /// As many GPUs would do if every slice could be divided at will, which none can.
    pub lower_bound_gpus: f64,
}

/// What no plan can do better than.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    pub(super) rules: f64,
    /// If every slice could be divided at will.
    pub(super) fractional: f64,
}

impl Plan {
    /// Puts `slices` in order and counts their GPUs.
    pub(super) fn new(mut slices: Vec<Slice>, bounds: Bounds) -> Self {
        slices.sort_by_key(|slice| (slice.gpu, slice.position.start()));
        let mut gpus: Vec<usize> = slices.iter().map(|slice| slice.gpu).collect();
        gpus.dedup();
        Self {
            slices,
            gpus_used: u32::try_from(gpus.len()).unwrap_or(u32::MAX),
            bound_gpus: bounds.rules,
            lower_bound_gpus: bounds.fractional,
        }
    }

    /// The whole number of GPUs that is proven to be needed.
    pub fn fewest_gpus(&self) -> u32 {
        search::at_least(self.bound_gpus)
    }

    /// Requests per second that all replicas of `model` serve together.
    pub fn capacity_rps(&self, model: usize) -> f64 {
        self.replicas(model).map(|replica| replica.capacity_rps).sum()
    }

    pub fn replicas(&self, model: usize) -> impl Iterator<Item = &Replica> {
        let all = self.slices.iter().flat_map(|slice| &slice.replicas);
        all.filter(move |replica| replica.model == model)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum PlanError {
    Homeless { model: String },
    Impossible { model: String, limit_ms: f64 },
    TooSmall { gpus: u32 },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Homeless { model } => write!(
                f,
                "no slice of the fleet can hold {model:?}: of what was measured of it, nothing is \
                 left within its memory and its largest batch; lower memory_mib, or measure it on \
                 these GPUs"
            ),
            Self::Impossible { model, limit_ms } => write!(
                f,
                "no slice of the fleet runs a batch of {model:?} within {limit_ms:.1} ms, its share \
                 of the objective; raise slo_ms, or latency_share in [planner]"
            ),
            Self::TooSmall { gpus } => write!(f, "the fleet of {gpus} GPUs is too small"),
        }
    }
}

impl std::error::Error for PlanError {}

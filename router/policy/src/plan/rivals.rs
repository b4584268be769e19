//! Other planners, behind the same question, for honest comparison.
//!
//! Each is restated from its publication, not copied; where a publication knows one kind of GPU,
//! kinds are used up in the fleet's order.

mod fit;
mod greedy;
mod parva;
mod yard;

use super::{Plan, PlanError, Problem, solve};

/// A way to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planner {
    /// This module's parent.
    Sluice,
    /// Whole GPUs, one model on each.
    WholeGpus,
    /// Each model's smallest sufficient slices, on the first GPU with room.
    FirstFit,
    /// The same slices, largest first, on the GPU with least room.
    BestFit,
    /// GPU by GPU, the shape and models that raise completion most (MIG-Serving's first step).
    Greedy,
    /// The most efficient slices, largest first, then small ones to fill holes (ParvaGPU).
    Parva,
}

impl Planner {
    /// Every planner, ours first.
    pub const ALL: [Self; 6] =
        [Self::Sluice, Self::WholeGpus, Self::FirstFit, Self::BestFit, Self::Greedy, Self::Parva];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sluice => "sluice",
            Self::WholeGpus => "one GPU per model",
            Self::FirstFit => "first fit",
            Self::BestFit => "best fit",
            Self::Greedy => "MIG-Serving greedy",
            Self::Parva => "ParvaGPU two steps",
        }
    }

    /// Plans. Only ours gives a bound; that of the others is 0.
    pub fn plan(self, problem: &Problem) -> Result<Plan, PlanError> {
        match self {
            Self::Sluice => solve(problem),
            Self::WholeGpus => fit::whole_gpus(problem),
            Self::FirstFit => fit::first_fit(problem),
            Self::BestFit => fit::best_fit(problem),
            Self::Greedy => greedy::plan(problem),
            Self::Parva => parva::plan(problem),
        }
    }
}

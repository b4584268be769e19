//! Other planners, behind the same question, for honest comparison.
//!
//! Each is restated from its publication, not copied; where a publication knows one kind of GPU,
//! kinds are used up in the fleet's order.

mod bins;
mod fit;
mod fragment;
mod greedy;
mod parva;

use super::{Plan, PlanError, Problem, solve_blind, solve_roomily};

/// A way to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planner {
    /// This module's parent, with what its GPUs leave spread evenly.
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
    /// Each slice where the room that is left stays most useful (fragmentation gradient descent).
    Fragmentation,
    /// Ours, as if no slice felt another.
    Blind,
}

impl Planner {
    /// Every planner, ours first.
    pub const ALL: [Self; 8] = [
        Self::Sluice,
        Self::WholeGpus,
        Self::FirstFit,
        Self::BestFit,
        Self::Greedy,
        Self::Parva,
        Self::Fragmentation,
        Self::Blind,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sluice => "sluice",
            Self::WholeGpus => "one GPU per model",
            Self::FirstFit => "first fit",
            Self::BestFit => "best fit",
            Self::Greedy => "MIG-Serving greedy",
            Self::Parva => "ParvaGPU two steps",
            Self::Fragmentation => "fragmentation descent",
            Self::Blind => "sluice, interference-blind",
        }
    }

    /// Plans. Only ours gives a bound; that of the others is 0.
    pub fn plan(self, problem: &Problem) -> Result<Plan, PlanError> {
        match self {
            Self::Sluice => solve_roomily(problem),
            Self::WholeGpus => fit::whole_gpus(problem),
            Self::FirstFit => fit::first_fit(problem),
            Self::BestFit => fit::best_fit(problem),
            Self::Greedy => greedy::plan(problem),
            Self::Parva => parva::plan(problem),
            Self::Fragmentation => fragment::plan(problem),
            Self::Blind => solve_blind(problem, &[]),
        }
    }
}

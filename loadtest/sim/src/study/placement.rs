//! The rule a study names for where replicas are.

use policy::plan::baselines::Planner;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// As many as each model says, over the slices the GPUs are cut into.
    Spread,
    /// A planner, from the demand and the measurements.
    Planned(Planner),
    /// As the demand asks at each moment.
    Follow,
}

impl Placement {
    pub fn names() -> Vec<&'static str> {
        let planners = Planner::ALL.iter().map(|planner| Self::Planned(*planner).name());
        ["spread", "follow"].into_iter().chain(planners).collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Spread => "spread",
            Self::Follow => "follow",
            Self::Planned(Planner::Sluice) => "plan",
            Self::Planned(Planner::WholeGpus) => "whole-gpus",
            Self::Planned(Planner::FirstFit) => "first-fit",
            Self::Planned(Planner::BestFit) => "best-fit",
            Self::Planned(Planner::Greedy) => "greedy",
            Self::Planned(Planner::Parva) => "parva",
            Self::Planned(Planner::Fragmentation) => "fragmentation",
            Self::Planned(Planner::Blind) => "plan-blind",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        let planners = Planner::ALL.iter().map(|planner| Self::Planned(*planner));
        [Self::Spread, Self::Follow].into_iter().chain(planners).find(|one| one.name() == name)
    }
}

//! `[planner]`: how models are placed.

use std::time::Duration;

use policy::{demand, plan::Rules};

use crate::{
    key::{
        Effect, Found, TableSpec,
        kinds::{DAY_S, Flag, Number, Seconds, Whole},
        table, whole,
    },
    problems::Notes,
    tree::Section,
};

/// More GPUs than any fleet has.
const MAX_GPUS: u64 = 1_000_000;

pub(crate) const PLANNER: TableSpec = TableSpec {
    name: "planner",
    title: "[planner]",
    about: "How models are placed on slices. Absent: every default.",
    whole: Effect::Live,
};

/// How models are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planner {
    /// What a plan may do.
    pub rules: Rules,
    /// How long capacity that was needed stays.
    pub patience: Duration,
    /// The window of demand that is always provided for.
    pub history: Duration,
    /// Time without requests after which a model with `replicas.min = 0` has no replica.
    pub idle: Duration,
}

table! {
    /// `[planner]` as the file has it.
    pub(crate) struct PlannerKeys {
        /// Share of the objective that a batch may take.
        latency_share: f64 = "latency_share" or(Rules::default().latency_share), LATENCY_SHARE, Live;
        /// Most processes of one model on one slice.
        max_processes: u32 = "max_processes" or(Rules::default().max_processes), Whole(1..=48), Live;
        /// Whether several models may take turns on one slice.
        share_slices: bool = "share_slices" or(Rules::default().share_slices), Flag, Live;
        /// GPUs of each kind that stay free, to replace those that fail.
        spare_gpus: u32 = "spare_gpus" or(Rules::default().spare_gpus), Whole(0..=MAX_GPUS), Live;
        /// How long capacity that was needed stays.
        patience: Duration = "patience_s" or(demand::Rule::default().patience), Seconds(0..=7 * DAY_S), Live;
        /// The window of demand that is always provided for.
        history: Duration = "history_s" or(demand::Rule::default().history), Seconds(60..=7 * DAY_S), Live;
        /// Time without requests after which a model with `replicas.min = 0` has no replica.
        idle: Duration = "idle_s" or(demand::Rule::default().idle), Seconds(1..=7 * DAY_S), Live;
    }
}

const LATENCY_SHARE: Number = Number(
    |share| share > 0.0 && share <= 0.5,
    "more than 0 and at most 0.5: a request may wait for one batch before its own",
);

pub(crate) fn read(section: Section<'_>, notes: &mut Notes<'_>) -> (Planner, Found) {
    let (keys, found) = whole(section, notes, PlannerKeys::read);
    let PlannerKeys { latency_share, max_processes, share_slices, spare_gpus, .. } = keys;
    let PlannerKeys { patience, history, idle, .. } = keys;
    let rules =
        Rules { latency_share, max_processes, share_slices, spare_gpus, ..Rules::default() };
    (Planner { rules, patience, history, idle }, found)
}

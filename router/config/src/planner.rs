//! How models are placed, as checked.

use std::time::Duration;

use policy::plan::Rules;

use super::{
    check::{within, within_u32},
    problems::{At, Notes},
    tree::Section,
};

/// More GPUs than any fleet has.
const MAX_GPUS: u32 = 1_000_000;
const DAY_S: u64 = 86_400;

/// How models are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planner {
    /// What a plan may do.
    pub rules: Rules,
    /// How long what was needed is kept.
    pub patience: Duration,
    /// Over how long the demand is remembered that is always provided for.
    pub history: Duration,
    /// With nothing asked for so long, a model that may have no replica has none.
    pub idle: Duration,
}

impl Default for Planner {
    fn default() -> Self {
        let rule = policy::demand::Rule::default();
        Self {
            rules: Rules::default(),
            patience: rule.patience,
            history: rule.history,
            idle: rule.idle,
        }
    }
}

/// `[planner]` as written.
#[derive(Default)]
pub(crate) struct PlannerDraft {
    pub(super) latency_share: Option<At<f64>>,
    pub(super) max_processes: Option<At<u64>>,
    pub(super) share_slices: Option<At<bool>>,
    pub(super) spare_gpus: Option<At<u64>>,
    pub(super) patience_s: Option<At<u64>>,
    pub(super) history_s: Option<At<u64>>,
    pub(super) idle_s: Option<At<u64>>,
}

impl PlannerDraft {
    pub(crate) fn read(mut section: Section<'_>, notes: &mut Notes<'_>) -> Self {
        let draft = Self {
            latency_share: section.get("latency_share", notes),
            max_processes: section.get("max_processes", notes),
            share_slices: section.get("share_slices", notes),
            spare_gpus: section.get("spare_gpus", notes),
            patience_s: section.get("patience_s", notes),
            history_s: section.get("history_s", notes),
            idle_s: section.get("idle_s", notes),
        };
        section.finish(notes);
        draft
    }

    pub(crate) fn check(&self, notes: &mut Notes<'_>) -> Planner {
        let mut planner = Planner::default();
        let rules = &mut planner.rules;
        if let Some(At { value, place }) = &self.latency_share {
            if *value > 0.0 && *value <= 0.5 {
                rules.latency_share = *value;
            } else {
                let message = format!(
                    "latency_share is {value}; give more than 0 and at most 0.5: a request may \
                     wait for one batch before its own"
                );
                notes.problem(*place, message);
            }
        }
        let (processes, spare) = (self.max_processes.as_ref(), self.spare_gpus.as_ref());
        rules.max_processes =
            within_u32("max_processes", processes, 1..=48, rules.max_processes, notes);
        rules.spare_gpus = within_u32("spare_gpus", spare, 0..=MAX_GPUS, rules.spare_gpus, notes);
        rules.share_slices =
            self.share_slices.as_ref().map_or(rules.share_slices, |given| given.value);
        let mut seconds = |key: &str, given: &Option<At<u64>>, least: u64, default: Duration| {
            let default = default.as_secs();
            Duration::from_secs(within(key, given.as_ref(), least..=7 * DAY_S, default, notes))
        };
        planner.patience = seconds("patience_s", &self.patience_s, 0, planner.patience);
        planner.history = seconds("history_s", &self.history_s, 60, planner.history);
        planner.idle = seconds("idle_s", &self.idle_s, 1, planner.idle);
        planner
    }
}

//! Nexus's rule: a sliding window that gives up the head to keep batches large.

use super::{Bound, Decision, Guard, Rule, View, planned, send_from, window_of};
use crate::moment::Moment;

/// Drops from the head until a batch of the planned size is in time.
#[derive(Clone, Copy, Debug)]
pub struct EarlyDrop;

impl Rule for EarlyDrop {
    fn name(&self) -> &'static str {
        "earlydrop"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        let planned = planned(view);
        match window_of(view, planned) {
            Some(skip) => send_from(view, skip, planned, Bound::Limit),
            None => Decision::Wait { until: Moment::NEVER },
        }
    }

    fn guard(&self) -> Guard {
        Guard::Off
    }

    fn predicts(&self) -> bool {
        false
    }
}

//! Nexus's rule: a sliding window that gives up the head to keep batches large.

use super::{Bound, Decision, Guard, Rule, View, send_from, send_prefix};

/// Drops from the head until a batch of the planned size is in time.
#[derive(Clone, Copy, Debug)]
pub struct EarlyDrop;

impl Rule for EarlyDrop {
    fn name(&self) -> &'static str {
        "earlydrop"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        let planned = view.latency.largest_within(view.objective / 2).clamp(1, view.limit);
        let mut rows_left = view.line.rows();
        for (index, waiting) in view.line.iter().enumerate() {
            let size = planned.min(u32::try_from(rows_left).unwrap_or(u32::MAX));
            if view.latency.high(size.max(waiting.rows)) <= view.slack(index) {
                return send_from(view, index, planned, Bound::Limit);
            }
            rows_left -= u64::from(waiting.rows);
        }
        // All are lost at this size; the last is still the most likely to be in time.
        send_prefix(view, 1)
    }

    fn guard(&self) -> Guard {
        Guard::Off
    }

    fn predicts(&self) -> bool {
        false
    }
}

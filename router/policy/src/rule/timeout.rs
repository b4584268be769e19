//! A fixed size and a fixed delay, as most servers batch by default.

use std::time::Duration;

use super::{Decision, Guard, Rule, View, send_prefix};
use crate::latency::Latency;

/// Sends when `batch` rows wait or the first has waited `delay`.
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    /// Rows that make a batch worth sending at once.
    pub batch: u32,
    /// The longest the first request waits for company.
    pub delay: Duration,
}

impl Rule for Timeout {
    fn name(&self) -> &'static str {
        "timeout"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        let size = self.batch.min(view.limit);
        let send_by = view.line.head().map_or(view.now, |head| head.arrived + self.delay);
        if view.line.rows() >= u64::from(size) || view.now >= send_by {
            send_prefix(view, size)
        } else {
            Decision::Wait { until: send_by }
        }
    }

    fn cap(&self, _: &Latency, limit: u32) -> u32 {
        self.batch.min(limit)
    }

    fn guard(&self) -> Guard {
        Guard::Off
    }

    fn predicts(&self) -> bool {
        false
    }
}

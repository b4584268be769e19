//! Symphony's rule: wait while one more request could still join, send before it is too late.

use super::{Bound, Decision, Guard, Rule, View, send_from};

/// Sends inside the window between the last moment for one more and the last moment at all.
#[derive(Clone, Copy, Debug)]
pub struct Deferred;

impl Rule for Deferred {
    fn name(&self) -> &'static str {
        "deferred"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        let size = view.latency.largest_within(view.slack(0)).clamp(1, view.limit);
        let fit = view.fit(0, size);
        if fit.count < view.line.len() || fit.rows >= view.limit {
            return send_from(view, 0, size, Bound::Deadline);
        }
        let one_more = view.latency.high(fit.rows + 1);
        match view.line.head() {
            Some(head) if view.start + one_more + view.margin < head.deadline => {
                Decision::Wait { until: head.deadline - view.margin - one_more }
            }
            Some(_) | None => send_from(view, 0, size, Bound::Deadline),
        }
    }

    fn guard(&self) -> Guard {
        Guard::Off
    }

    fn predicts(&self) -> bool {
        false
    }
}

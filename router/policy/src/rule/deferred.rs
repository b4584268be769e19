//! Symphony's rule: wait while one more request could still join, send before it is too late.
//!
//! What cannot be served in a batch of the planned size is dropped from the head, as Nexus does: the
//! published rule says when to send, not whom to give up, and without this it would collapse.

use super::{Bound, Decision, Guard, Rule, View, planned, send_from, window_of};
use crate::{moment::Moment, queue::Waiting};

/// Sends inside the window between the last moment for one more and the last moment at all.
#[derive(Clone, Copy, Debug)]
pub struct Deferred;

impl Rule for Deferred {
    fn name(&self) -> &'static str {
        "deferred"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        let Some(skip) = window_of(view, planned(view)) else {
            return Decision::Wait { until: Moment::NEVER };
        };
        let size = view.latency.largest_within(view.slack(skip)).min(view.limit);
        let fit = view.fit(skip, size);
        let one_more = view.latency.high(fit.rows + 1);
        let all = skip + fit.count == view.line.len();
        let latest = view.line.get(skip).map_or(view.now, Waiting::by) - view.margin;
        if all && fit.rows < view.limit && view.start + one_more < latest {
            return Decision::Wait { until: latest - one_more };
        }
        send_from(view, skip, size, Bound::Deadline)
    }

    fn guard(&self) -> Guard {
        Guard::Off
    }

    fn predicts(&self) -> bool {
        false
    }
}

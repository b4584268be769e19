//! The spans of batches with traced requests in them.

use policy::{
    dispatch::{Batch, ClosedBy},
    moment::Moment,
};
use protocol::{Facts, Outcome};

use super::{Dispatcher, state::State};
use crate::trace::{BatchSpan, BatchSpanEnd};

impl Dispatcher {
    /// A span for `batch`, and one for the wait of each traced request in it; none if none is.
    pub(super) fn trace_send(
        &self,
        state: &State,
        batch: &Batch,
        now: Moment,
    ) -> Option<Box<BatchSpan>> {
        let members = || {
            let places = batch.requests.iter().filter_map(|id| state.place(*id));
            places.map(|place| &state.pending[place])
        };
        if members().all(|pending| pending.traced.is_none()) {
            return None;
        }
        let traced: Vec<_> = members().filter_map(|pending| pending.traced.clone()).collect();
        let mut span = BatchSpan::send(&traced, self.clock.instant(now))?;
        let closed_by = match batch.closed_by {
            ClosedBy::Full => "full",
            ClosedBy::Deadline => "deadline",
            ClosedBy::IdleReplica => "idle_replica",
            ClosedBy::Shape => "shape",
        };
        let slice = state.links.get(&batch.replica).map_or("", |attached| &*attached.slice);
        span.describe(batch.rows, batch.requests.len(), closed_by, slice);
        for pending in members() {
            if let Some(traced) = &pending.traced {
                span.waited(traced, self.clock.instant(pending.came.arrived));
            }
        }
        Some(Box::new(span))
    }

    pub(super) fn trace_end(&self, span: BatchSpan, outcome: &Outcome, facts: &Facts) {
        let error = match outcome {
            Outcome::Done(_) => None,
            Outcome::Failed(failure) => Some(failure.message.as_str()),
            Outcome::Cancelled => Some("cancelled"),
        };
        span.end(BatchSpanEnd { at: self.clock.instant(self.clock.now()), facts, error });
    }
}

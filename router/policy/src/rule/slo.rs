//! Our rule: serve all who can be served; when some must be lost, lose the fewest.
//!
//! The latency model guides the size, the additive-increase limit guards it. A batch takes the head
//! and as many behind it as the head's deadline allows, never more than the size with the most rows
//! per second. If those left behind would then be late, the head may be costing more than it is
//! worth: the batch that starts further down the line is larger. While demand is within capacity
//! that is done only if it saves more of those now waiting; when capacity is scarce, whenever it
//! raises the rows served per second. A protected request is never passed over.

use super::{Bound, Decision, Guard, Rule, View, send_from};
use crate::{latency::Latency, moment::Moment, queue::Standing};

/// The default rule.
#[derive(Clone, Copy, Debug)]
pub struct Slo;

impl Rule for Slo {
    fn name(&self) -> &'static str {
        "slo"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        let cap = self.cap(view.latency, view.limit);
        let head_rows = view.latency.largest_within(view.slack(0)).min(cap);
        let prefix = view.fit(0, head_rows);
        let bound = if head_rows < cap { Bound::Deadline } else { Bound::Limit };
        let send_prefix = send_from(view, 0, head_rows, bound);
        if prefix.count == view.line.len() {
            return send_prefix;
        }
        let Some(window) = best_window(view, cap) else { return send_prefix };
        let better = if view.scarce {
            view.latency.rows_per_second(window.rows) > view.latency.rows_per_second(prefix.rows)
        } else {
            let saved = |end: usize, rows| saved_after(view, end, start_after(view, rows), cap);
            let by_prefix = prefix.count + saved(prefix.count, prefix.rows);
            let by_window = window.count + saved(window.skip + window.count, window.rows);
            by_window > by_prefix
        };
        if better { send_from(view, window.skip, window.rows, Bound::Deadline) } else { send_prefix }
    }

    fn cap(&self, latency: &Latency, limit: u32) -> u32 {
        latency.worth_trying(limit)
    }

    fn guard(&self) -> Guard {
        Guard::Deadlines
    }

    fn predicts(&self) -> bool {
        true
    }
}

#[derive(Clone, Copy)]
struct Window {
    skip: usize,
    count: usize,
    rows: u32,
}

/// The batch with the most rows per second among those that start at or before the first protected
/// request; of equals the one that passes over the fewest.
fn best_window(view: &View<'_>, cap: u32) -> Option<Window> {
    let mut best: Option<Window> = None;
    let mut rows_left = view.line.rows();
    for (skip, waiting) in view.line.iter().enumerate() {
        let size = view.latency.largest_within(view.slack(skip)).min(cap);
        let rows = size.min(u32::try_from(rows_left).unwrap_or(u32::MAX));
        let better = best.is_none_or(|best| {
            view.latency.rows_per_second(rows) > view.latency.rows_per_second(best.rows)
        });
        if rows > 0 && better {
            let fit = view.fit(skip, rows);
            best = Some(Window { skip, count: fit.count, rows: fit.rows });
        }
        if waiting.standing == Standing::Protected {
            break;
        }
        rows_left -= u64::from(waiting.rows);
    }
    best
}

/// How many of those from `from` on are served in time if nobody else comes.
fn saved_after(view: &View<'_>, from: usize, mut start: Moment, cap: u32) -> usize {
    let mut saved = 0;
    let mut index = from;
    while let Some(waiting) = view.line.get(index) {
        let slack = (waiting.deadline - view.margin).since(start);
        let size = view.latency.largest_within(slack).min(cap);
        if size == 0 {
            index += 1;
            continue;
        }
        let fit = view.fit(index, size);
        saved += fit.count;
        index += fit.count;
        start = start + view.latency.mean(fit.rows) / view.replicas.max(1);
    }
    saved
}

/// When the next batch could start after one of `rows`, some replica of all being the first free.
fn start_after(view: &View<'_>, rows: u32) -> Moment {
    view.start + view.latency.mean(rows) / view.replicas.max(1)
}

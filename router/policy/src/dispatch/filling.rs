//! Whom else a batch takes, once it has those it is made for.
//!
//! If it is made for protected requests, others join as far as nearly every batch of that size keeps
//! the first of them in time: their room is what the protected leave, and not the other way round.
//! The batch class joins in what is left then.

use super::{Dispatch, Effect, forming::Cut};
use crate::{
    moment::Moment,
    queue::{Priority, Waiting},
    rule::{Fit, View},
};

/// Which of the others join a batch: `skip` are too old for it, and then come those who fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Joining {
    skip: usize,
    fit: Fit,
}

/// What a batch holds already, and what that leaves.
#[derive(Clone, Copy, Debug)]
struct Held {
    rows: u32,
    count: usize,
    /// The most requests there may be.
    company: usize,
    due: Moment,
}

impl Held {
    fn by(taken: &[Waiting]) -> Self {
        Self {
            rows: taken.iter().map(|waiting| waiting.rows).sum(),
            count: taken.len(),
            company: taken.iter().map(|one| one.company).min().unwrap_or(u32::MAX) as usize,
            due: taken.iter().map(Waiting::by).min().unwrap_or(Moment::NEVER),
        }
    }

    /// How many in line from `skip` on fit beside it in a batch of `rows`.
    fn leaves(&self, view: &View<'_>, skip: usize, rows: u32) -> Fit {
        let mut fit = Fit { count: 0, rows: 0 };
        let mut company = self.company;
        for waiting in view.line.iter().skip(skip) {
            company = company.min(waiting.company as usize);
            let larger = fit.rows.saturating_add(waiting.rows);
            if self.rows.saturating_add(larger) > rows || self.count + fit.count >= company {
                break;
            }
            fit = Fit { count: fit.count + 1, rows: larger };
        }
        fit
    }
}

impl Dispatch {
    /// Adds those not protected to a batch of those who are.
    ///
    /// While capacity is scarce, the ones too old for it are told at once, as they are by the rule.
    pub(super) fn fill_with_others(
        &mut self,
        taken: &mut Vec<Waiting>,
        cut: Cut,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        let view = self.view(cut.key, cut.taker, Priority::Normal, now);
        let cap = self.rule.cap(view.latency, view.limit);
        let Joining { skip, fit } = joining(&view, Held::by(taken), cap);
        let line = self.line_mut(cut.key, Priority::Normal);
        let skipped: Vec<Waiting> = line.take(skip).collect();
        taken.extend(line.take(fit.count));
        self.pass_over(skipped, cut, now, effects);
    }

    /// Adds requests of the batch class in the room that is left.
    pub(super) fn fill_up(&mut self, taken: &mut Vec<Waiting>, cut: Cut, start: Moment) {
        let replica = &self.replicas[cut.taker];
        let cap = self.cap(replica, cut.key);
        let mut held = Held::by(taken);
        let Some(queue) = self.queues.get_mut(cut.key) else { return };
        while let Some(head) = queue.low.head() {
            held.company = held.company.min(head.company as usize);
            held.due = held.due.min(head.by());
            held.rows = held.rows.saturating_add(head.rows);
            let done_at = start + replica.latency(cut.key).high(held.rows) + self.settings.margin;
            if held.rows > cap || taken.len() >= held.company || done_at > held.due {
                break;
            }
            taken.extend(queue.low.remove_at(0));
        }
    }
}

/// The most of those in line that may join a batch that is `held`.
///
/// Only while capacity is scarce are any passed over, and then as many as makes it largest.
fn joining(view: &View<'_>, held: Held, cap: u32) -> Joining {
    let latency = view.latency;
    let slack = (held.due - view.margin).since(view.start);
    let room = latency.largest_stretched(slack, latency.rare()).min(cap);
    let mut best = Joining { skip: 0, fit: Fit { count: 0, rows: 0 } };
    let (most, ratio) =
        if view.scarce { (view.line.len(), view.caution) } else { (1, latency.spread()) };
    for skip in 0..most.min(view.line.len()) {
        let own = latency.largest_stretched(view.slack(skip), ratio);
        let fit = held.leaves(view, skip, own.min(room));
        if fit.rows > best.fit.rows {
            best = Joining { skip, fit };
        }
        if own >= room {
            break;
        }
    }
    best
}

//! Our rule: serve all who can be served; when some must be lost, lose the fewest.
//!
//! The latency model guides the size, the additive-increase limit guards it. A batch takes the head
//! and as many behind it as the head's deadline allows, never more than the size with the most rows
//! per second. If those left behind would then be late, the head may be costing more than it is
//! worth: the batch that starts further down the line is larger. While demand is within capacity
//! that is done only if it saves more of those now waiting; when capacity is scarce, whenever it
//! raises the rows expected in time per second. Protected requests stand in a line of their own, for
//! which it never is scarce: one is passed over only for others that are.

use super::{Bound, Decision, Fit, Guard, Rule, View, send_from};
use crate::{latency::Latency, moment::Moment, scarcity::SAMPLES};

/// A chance that passing over one more request cannot better.
const CERTAIN: f64 = 0.98;

#[derive(Clone, Copy, Debug)]
pub struct Slo;

impl Rule for Slo {
    fn name(&self) -> &'static str {
        "slo"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        let cap = self.cap(view.latency, view.limit);
        // Another replica must be fast enough for those before the first, or they had been shed.
        let Some(first) = (0..view.line.len()).find(|index| is_savable(view, *index)) else {
            return Decision::Wait { until: Moment::NEVER };
        };
        let window = if view.scarce { most_per_second(view, first, cap) } else { None };
        let window = window.unwrap_or_else(|| most_saved(view, first, cap));
        let bound = if window.fit.rows < cap { Bound::Deadline } else { Bound::Limit };
        send_from(view, window.skip, window.fit.rows, bound)
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
    fit: Fit,
}

fn is_savable(view: &View<'_>, index: usize) -> bool {
    let rows = view.line.get(index).map_or(0, |waiting| waiting.rows);
    view.latency.low(rows) <= view.slack(index)
}

/// As many from `skip` on as the deadline of the first of them allows, at most `cap` rows.
fn prefix(view: &View<'_>, skip: usize, cap: u32, ratio: f64) -> Window {
    let allowed = view.latency.largest_stretched(view.slack(skip), ratio);
    Window { skip, fit: view.fit(skip, allowed.min(cap)) }
}

/// The batch expected to give the most in time per second, if any has a chance.
fn most_per_second(view: &View<'_>, first: usize, cap: u32) -> Option<Window> {
    let mut best: Option<(f64, Window)> = None;
    for skip in first..view.line.len() {
        let whole = Window { skip, fit: view.fit(skip, cap) };
        for window in [prefix(view, skip, cap, view.caution), whole] {
            let worth = worth(view, window);
            if worth > best.map_or(0.0, |(most, _)| most) {
                best = Some((worth, window));
            }
        }
        if view.latency.chance(whole.fit.rows, view.slack(skip)) >= CERTAIN {
            break;
        }
    }
    best.map(|(_, window)| window)
}

/// Rows of `window` in time per second.
fn worth(view: &View<'_>, window: Window) -> f64 {
    view.latency.rows_per_second(window.fit.rows) * chance_by_sample(view, window)
}

/// The chance that a member of `window` is in time, by a few of them, each for those behind it.
fn chance_by_sample(view: &View<'_>, window: Window) -> f64 {
    let chances = (0..SAMPLES).map(|sample| {
        let index = window.skip + window.fit.count * sample / SAMPLES;
        view.latency.chance(window.fit.rows, view.slack(index))
    });
    chances.sum::<f64>() / SAMPLES as f64
}

/// The batch after which the most of those now waiting will have been served in time.
fn most_saved(view: &View<'_>, first: usize, cap: u32) -> Window {
    let spread = view.latency.spread();
    let safe = prefix(view, first, cap, spread);
    if first + safe.fit.count == view.line.len() {
        return safe;
    }
    let saved = |window: Window| {
        let end = window.skip + window.fit.count;
        let start = view.start + view.latency.mean(window.fit.rows) / view.replicas.max(1);
        let later = saved_after(view, end, start, cap);
        window.fit.count as f64 * chance_by_sample(view, window) + later as f64
    };
    let whole = Window { skip: first, fit: view.fit(first, cap) };
    let mut best = (saved(safe), safe);
    for window in [prefix(view, first, cap, 1.0), whole, fastest(view, first, cap)] {
        let count = saved(window);
        if count > best.0 {
            best = (count, window);
        }
    }
    best.1
}

/// The batch with the most rows per second of those that keep the first of them in time.
fn fastest(view: &View<'_>, first: usize, cap: u32) -> Window {
    let spread = view.latency.spread();
    let speed = |window: Window| view.latency.rows_per_second(window.fit.rows);
    let mut fastest = prefix(view, first, cap, spread);
    for skip in first..view.line.len() {
        let window = prefix(view, skip, cap, spread);
        if is_savable(view, skip) && speed(window) > speed(fastest) {
            fastest = window;
        }
        if window.fit.rows >= cap {
            break;
        }
    }
    fastest
}

/// How many of those from `from` on are served in time if nobody else comes.
fn saved_after(view: &View<'_>, from: usize, mut start: Moment, cap: u32) -> usize {
    let mut saved = 0;
    let mut index = from;
    while let Some(waiting) = view.line.get(index) {
        let slack = (waiting.by() - view.margin).since(start);
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

//! What came in the last minute.

use std::{collections::VecDeque, time::Duration};

use crate::moment::Moment;

const MINUTE: Duration = Duration::from_secs(60);
/// Spans whose rate is held against that of twice the span before it.
///
/// The shorter the span, the sooner a rise is seen; the more it must be to be more than chance, and
/// the less far it is believed to go on, since it may be a step.
const WATCHED: [Watched; 3] = [
    Watched { span: Duration::from_secs(1), deviations: 5.0, believed: 0.5 },
    Watched { span: Duration::from_secs(2), deviations: 4.0, believed: 0.75 },
    Watched { span: Duration::from_secs(5), deviations: 3.0, believed: 1.0 },
];
/// Fewer spans do not say how much rates vary by chance.
const LEAST_SPANS: usize = 10;
/// The median of the square of a normal deviation.
const MEDIAN_BY_CHANCE: f64 = 0.455;
/// Spans kept at most, however often somebody looks.
const SPANS: usize = 1_024;

/// How a rise is looked for.
#[derive(Clone, Copy, Debug)]
struct Watched {
    span: Duration,
    /// Deviations that it must have.
    deviations: f64,
    /// The part of what comes now that may be added for what will come.
    believed: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) arrived: u64,
    pub(super) late: u64,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: Moment,
    to: Moment,
    counts: Counts,
}

/// What came, as far back as the window.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    window: Duration,
    spans: VecDeque<Span>,
    began_at: Option<Moment>,
    /// When the present minute began, and what came in it.
    minute: (Moment, u64),
}

impl Recent {
    pub(super) fn new(window: Duration) -> Self {
        let minute = (Moment::default(), 0);
        Self { window, spans: VecDeque::new(), began_at: None, minute }
    }

    /// Adds what came since the last time; gives the rate of a minute that has become whole.
    ///
    /// The first time only begins: nobody knows since when that came.
    pub(super) fn add(&mut self, counts: Counts, now: Moment) -> Option<f64> {
        let Some(began_at) = self.began_at else {
            self.began_at = Some(now);
            self.minute.0 = now;
            return None;
        };
        let from = self.spans.back().map_or(began_at, |span| span.to);
        self.spans.push_back(Span { from, to: now, counts });
        let old = |span: &Span| now.since(span.to) > self.window;
        while self.spans.front().is_some_and(old) || self.spans.len() > SPANS {
            self.spans.pop_front();
        }
        self.minute.1 += counts.arrived;
        let length = now.since(self.minute.0);
        (length >= MINUTE).then(|| {
            let rate = self.minute.1 as f64 / length.as_secs_f64();
            self.minute = (now, 0);
            rate
        })
    }

    /// Rows per second over the last `span`, or since the beginning if that is shorter.
    pub(super) fn rate(&self, span: Duration, now: Moment) -> f64 {
        self.between(now - span, now)
    }

    /// The part of what came in the last `span` that was late.
    pub(super) fn late_part(&self, span: Duration, now: Moment) -> f64 {
        let mut total = Counts::default();
        for Span { counts, .. } in
            self.spans.iter().rev().take_while(|one| now.since(one.to) < span)
        {
            total.arrived += counts.arrived;
            total.late += counts.late;
        }
        total.late as f64 / total.arrived.max(1) as f64
    }

    /// The rate that will be `ahead` from now, if it rises as it does; none if that may be chance.
    pub(super) fn rising(&self, ahead: Duration, now: Moment) -> Option<f64> {
        let seen = WATCHED.iter().filter_map(|watched| {
            let span_s = watched.span.as_secs_f64();
            let middle = now - watched.span;
            let before = self.between(middle - 2 * watched.span, middle);
            let after = self.between(middle, now);
            let varies = self.dispersion(middle - 2 * watched.span);
            let chance = (varies * (after / span_s + before / (2.0 * span_s))).sqrt();
            let rise = after - before;
            let known = self.knows(3 * watched.span, now);
            // From the middle of one to the middle of the other are one and a half spans, and from
            // there to now is half a span.
            let more = rise / (1.5 * span_s) * (ahead.as_secs_f64() + span_s / 2.0);
            let sure = known && rise > watched.deviations * chance;
            sure.then(|| after + more.min(watched.believed * after))
        });
        seen.reduce(f64::max)
    }

    /// How much more than by mere chance the counts before `until` vary from one to the next: 1 for
    /// callers who do not know of each other.
    ///
    /// By the median, so that a change of the level is no sign of it.
    fn dispersion(&self, until: Moment) -> f64 {
        let rate = |span: &Span| {
            let length_s = span.to.since(span.from).as_secs_f64().max(1e-3);
            (span.counts.arrived as f64 / length_s, length_s)
        };
        let before: Vec<(f64, f64)> =
            self.spans.iter().take_while(|span| span.to <= until).map(rate).collect();
        let mut off: Vec<f64> = before
            .windows(2)
            .map(|pair| {
                let [(a, a_s), (b, b_s)] = [pair[0], pair[1]];
                // The square of their difference, against what it is by chance.
                (a - b).powi(2) / (a / a_s + b / b_s).max(1e-9)
            })
            .collect();
        if off.len() < LEAST_SPANS {
            return 1.0;
        }
        off.sort_by(f64::total_cmp);
        (off[off.len() / 2] / MEDIAN_BY_CHANCE).max(1.0)
    }

    pub(super) fn knows(&self, span: Duration, now: Moment) -> bool {
        self.began_at.is_some_and(|at| now.since(at) >= span)
    }

    /// Rows per second from one moment to another; of a span that is only partly between them, as
    /// large a part.
    fn between(&self, from: Moment, to: Moment) -> f64 {
        let from = self.began_at.map_or(from, |began_at| from.max(began_at));
        let part = |span: &Span| {
            let within = span.to.min(to).since(span.from.max(from)).as_secs_f64();
            let whole = span.to.since(span.from).as_secs_f64();
            if whole > 0.0 { span.counts.arrived as f64 * within / whole } else { 0.0 }
        };
        let rows: f64 = self.spans.iter().rev().take_while(|span| span.to > from).map(part).sum();
        rows / to.since(from).as_secs_f64().max(1.0)
    }
}

//! What came in the last minute.

use std::{collections::VecDeque, time::Duration};

use crate::moment::Moment;

const MINUTE: Duration = Duration::from_secs(60);
/// The span whose rate is held against that of twice the span before it.
const SLOPE: Duration = Duration::from_secs(5);
/// Deviations that a rise must have to be more than chance.
const SURE: f64 = 3.0;
/// Spans kept at most, however often somebody looks.
const SPANS: usize = 1_024;

/// Rows that came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) arrived: u64,
    pub(super) late: u64,
}

/// What came between two moments.
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

    /// Rows per second that the rate grows each second; 0 if that may be chance.
    pub(super) fn slope(&self, now: Moment) -> f64 {
        let middle = now - SLOPE;
        let (before, after) = (self.between(middle - 2 * SLOPE, middle), self.between(middle, now));
        let span_s = SLOPE.as_secs_f64();
        let chance = (after / span_s + before / (2.0 * span_s)).sqrt();
        let known = self.knows(3 * SLOPE, now);
        let rise = after - before;
        // From the middle of one to the middle of the other are one and a half spans.
        if known && rise > SURE * chance { rise / (1.5 * span_s) } else { 0.0 }
    }

    /// Whether it has been watched for so long.
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

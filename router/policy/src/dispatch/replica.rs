//! What the router believes of one replica: its speed, its limit, its health and its work.

use std::time::Duration;

use super::{Effect, curves::Curves};
use crate::{
    aimd::{self, Aimd, Step},
    breaker::Breaker,
    inflight::Flight,
    latency::{Change, Latency},
    moment::Moment,
    rule::Guard,
    scarcity::Plan,
};

const SHRINK: f64 = 0.9;
/// A batch is sent ahead only if the end it waits for is known to this many times the lead: to be
/// bound early to a replica that is late costs more than the gap between two batches.
const STEADY: u32 = 3;

#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) id: u32,
    pub(crate) curves: Curves,
    pub(crate) aimd: Aimd,
    pub(crate) breaker: Breaker,
    pub(crate) running: Option<Flight>,
    pub(crate) next: Option<Flight>,
    /// Leaves rotation when what it has is done.
    pub(crate) draining: bool,
    /// When it last showed how fast it is, or was doubted.
    pub(crate) heard_at: Moment,
    /// The largest batch after which one who just missed it can still have its own in time.
    pub(crate) lossless_rows: u32,
    /// Rows per second it can serve with nobody lost.
    pub(crate) lossless_rate: f64,
    pub(crate) plan: Plan,
    pub(crate) turn: Turn,
    /// The longest one of its batches may take, where others wait for their turn.
    pub(crate) longest: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Always,
    /// One at a time, and the next may be its own.
    Free,
    /// One at a time, and another's should be done by then.
    Elsewhere {
        until: Moment,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lesson {
    pub(crate) step: Step,
    pub(crate) change: Change,
    pub(crate) took: Duration,
}

impl Replica {
    pub(crate) fn new(id: u32, measured: &[(u32, Duration)], max: u32, now: Moment) -> Self {
        Self {
            id,
            curves: Curves::new(if measured.is_empty() {
                Latency::unknown(max)
            } else {
                Latency::new(measured, max)
            }),
            aimd: Aimd::new(aimd::Rule { min: 1, max, shrink: SHRINK, slow_start: true }),
            breaker: Breaker::default(),
            running: None,
            next: None,
            draining: false,
            heard_at: now,
            lossless_rows: 1,
            lossless_rate: 0.0,
            plan: Plan { caution: 1.0, needs: Duration::ZERO },
            turn: Turn::Always,
            longest: None,
        }
    }

    /// Works out what it can serve within `allowed` of each arrival with nobody lost, if one who just
    /// missed a batch waits for `turns` of them before its own starts.
    pub(crate) fn appraise(&mut self, allowed: Duration, turns: f64, guard: Guard) {
        let limit = self.limit(guard);
        let rate = |latency: &Latency| {
            let in_turn = latency.largest_within(allowed.div_f64(1.0 + turns)).max(1);
            latency.rows_per_second(latency.most_efficient(limit.min(in_turn)))
        };
        let latency = self.curves.last();
        self.lossless_rows = latency.largest_within(allowed / 2).max(1);
        self.lossless_rate = if self.curves.is_single() {
            rate(latency)
        } else {
            1.0 / self.curves.mix().map(|(latency, part)| part / rate(latency)).sum::<f64>()
        };
    }

    /// How long it takes for requests of `key`.
    pub(crate) fn latency(&self, key: usize) -> &Latency {
        self.curves.of(key)
    }

    pub(crate) fn free_at(&self, now: Moment) -> Moment {
        let now = match self.turn {
            Turn::Always | Turn::Free => now,
            Turn::Elsewhere { until } => until.max(now),
        };
        let running_ends = match &self.running {
            None => self.breaker.reopens_at().unwrap_or(now).max(now),
            Some(flight) => {
                let expected = flight.expected_end();
                if expected >= now {
                    expected
                } else {
                    let elapsed = now.since(flight.started_at);
                    now + self.latency(flight.key).remaining(flight.rows, elapsed)
                }
            }
        };
        match &self.next {
            None => running_ends,
            Some(flight) => running_ends + flight.expects,
        }
    }

    /// Whether it can be counted on for its part of the demand.
    pub(crate) fn is_working(&self, now: Moment) -> bool {
        let stalled = self.running.as_ref().is_some_and(|flight| flight.stalled);
        !self.draining && !stalled && self.breaker.reopens_at().is_none_or(|at| at <= now)
    }

    /// Whether a batch may be sent now: it is idle, or will be within `lead`.
    pub(crate) fn takes_at(&self, now: Moment, lead: Duration) -> bool {
        let elsewhere = self.turn_comes_at().is_some_and(|at| now < at);
        if self.draining || elsewhere || self.next.is_some() || !self.breaker.allows(now) {
            return false;
        }
        match &self.running {
            None => true,
            Some(flight) => {
                let opens = self.sends_ahead(flight, lead);
                opens.is_some_and(|opens| opens <= now && now <= flight.expected_end())
            }
        }
    }

    /// When that will become so by itself, if it will.
    pub(crate) fn turns_free(&self, now: Moment, lead: Duration) -> Option<Moment> {
        let at = match (&self.running, &self.next) {
            (None, _) => self.breaker.reopens_at().max(self.turn_comes_at())?,
            (Some(flight), None) => self.sends_ahead(flight, lead)?,
            (Some(_), Some(_)) => return None,
        };
        (at > now && !self.draining).then_some(at)
    }

    /// When it goes on though nobody told it that the other's batch is done.
    pub(crate) fn turn_comes_at(&self) -> Option<Moment> {
        match self.turn {
            Turn::Always | Turn::Free => None,
            Turn::Elsewhere { until } => Some(until + self.longest.unwrap_or_default()),
        }
    }

    /// From when a batch may be sent behind `flight`, if one may.
    fn sends_ahead(&self, flight: &Flight, lead: Duration) -> Option<Moment> {
        let uncertain = flight.expects.mul_f64(self.latency(flight.key).noise());
        let steady = lead > Duration::ZERO && uncertain <= lead * STEADY;
        // Where others take turns, the next batch may be theirs.
        let may = steady && self.turn == Turn::Always && !self.breaker.is_tripped();
        may.then(|| flight.expected_end() - lead)
    }

    /// The most rows its next batch may hold.
    pub(crate) fn limit(&self, guard: Guard) -> u32 {
        let limit = match guard {
            Guard::Off => self.curves.last().max(),
            Guard::Execution | Guard::Deadlines => self.aimd.limit(),
        };
        match self.longest {
            None => limit,
            Some(longest) => limit.min(self.curves.last().largest_within(longest)).max(1),
        }
    }

    pub(crate) fn send(&mut self, mut flight: Flight, now: Moment) {
        self.breaker.sent(now);
        match &self.running {
            None => self.running = Some(flight),
            Some(running) => {
                assert!(self.next.is_none(), "a replica holds one running and one waiting batch");
                flight.started_at = running.expected_end().max(now);
                self.next = Some(flight);
            }
        }
    }

    /// Takes off the batch, and lets the one behind it start.
    pub(crate) fn take(&mut self, batch: u64, now: Moment) -> Option<Flight> {
        if self.running.as_ref().is_some_and(|flight| flight.batch == batch) {
            let done = self.running.take();
            self.running = self.next.take();
            if self.running.is_none() && self.turn != Turn::Always {
                self.turn = Turn::Elsewhere { until: now };
            }
            if let Some(flight) = &mut self.running {
                flight.started_at = now;
            }
            return done;
        }
        if self.next.as_ref().is_some_and(|flight| flight.batch == batch) {
            return self.next.take();
        }
        None
    }

    /// Asks that the waiting batch be forgotten, once, if nobody waits for it any more.
    pub(crate) fn call_off(&mut self) -> Option<Effect> {
        let next = self.next.as_mut()?;
        next.call_off().then_some(Effect::Cancel { batch: next.batch, replica: self.id })
    }

    pub(crate) fn learn(&mut self, flight: &Flight, now: Moment, due_at: Moment) -> Lesson {
        self.heard_at = now;
        let took = now.since(flight.started_at);
        // One that overtook the batch before it says nothing of its own time.
        let change = if now > flight.started_at {
            self.curves.observe(flight.key, flight.rows, took)
        } else {
            Change::Steady
        };
        let step = if flight.is_late() {
            Step::Held
        } else {
            self.aimd.observe(aimd::Finished {
                full: flight.full,
                sent_at: flight.sent_at,
                done_at: now,
                due_at,
            })
        };
        Lesson { step, change, took }
    }

    pub(crate) fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.running.iter().chain(self.next.iter())
    }

    pub(crate) fn flights_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.running.iter_mut().chain(self.next.iter_mut())
    }
}

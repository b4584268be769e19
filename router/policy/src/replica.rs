//! What the router believes of one replica: its speed, its limit, its health and its work.

use std::time::Duration;

use crate::{
    aimd::{self, Aimd, Step},
    breaker::Breaker,
    inflight::Flight,
    latency::{Change, Latency},
    moment::Moment,
    rule::Guard,
};

/// One replica in rotation.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) id: u32,
    pub(crate) latency: Latency,
    pub(crate) aimd: Aimd,
    pub(crate) breaker: Breaker,
    pub(crate) running: Option<Flight>,
    pub(crate) next: Option<Flight>,
    /// Leaves rotation when what it has is done.
    pub(crate) draining: bool,
}

/// What a finished batch taught.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lesson {
    pub(crate) step: Step,
    pub(crate) change: Change,
    pub(crate) took: Duration,
    pub(crate) expected: Duration,
}

impl Replica {
    /// When it could start another batch.
    ///
    /// A batch that is overdue is expected to take as long again as it already is late, so that a
    /// stuck replica soon looks as far away as it is.
    pub(crate) fn free_at(&self, now: Moment) -> Moment {
        let running_ends = match &self.running {
            None => now,
            Some(flight) => {
                let expected = flight.expected_end();
                if expected >= now { expected } else { now + now.since(expected) }
            }
        };
        match &self.next {
            None => running_ends,
            Some(flight) => running_ends + flight.expects,
        }
    }

    /// Whether a batch may be sent now: it is idle, or will be within `lead`.
    pub(crate) fn takes_at(&self, now: Moment, lead: Duration) -> bool {
        if self.draining || self.next.is_some() || !self.breaker.allows(now) {
            return false;
        }
        match &self.running {
            None => true,
            Some(flight) => {
                let ends = flight.expected_end();
                ends >= now && ends.since(now) <= lead && !self.breaker.is_tripped()
            }
        }
    }

    /// The most rows its next batch may hold.
    pub(crate) fn limit(&self, guard: Guard) -> u32 {
        match guard {
            Guard::Off => self.latency.max(),
            Guard::Execution | Guard::Deadlines => self.aimd.limit(),
        }
    }

    /// Puts a batch on it.
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
            self.running = self.next.take().map(|flight| Flight { started_at: now, ..flight });
            return done;
        }
        if self.next.as_ref().is_some_and(|flight| flight.batch == batch) {
            return self.next.take();
        }
        None
    }

    /// Learns from a batch that came back whole.
    pub(crate) fn learn(&mut self, flight: &Flight, now: Moment, due_at: Moment) -> Lesson {
        let took = now.since(flight.started_at);
        let change = self.latency.observe(flight.rows, took);
        let step = self.aimd.observe(aimd::Finished {
            full: flight.full,
            sent_at: flight.sent_at,
            done_at: now,
            due_at,
        });
        Lesson { step, change, took, expected: flight.expects }
    }

    pub(crate) fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.running.iter().chain(self.next.iter())
    }

    pub(crate) fn flights_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.running.iter_mut().chain(self.next.iter_mut())
    }
}

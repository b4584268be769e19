//! When things happen: the schedule, the timer and the loop.

use std::{sync::atomic::Ordering, time::Duration};

use rustix::{
    buffer::spare_capacity,
    event::{
        Timespec,
        epoll::{self, Event},
    },
    io::Errno,
    time::{Itimerspec, TimerfdTimerFlags, timerfd_settime},
};

use super::{Control, Engine, EngineError, cannot, socket::Flight};
use crate::{
    clock,
    plan::{Pacing, Schedule, Stream},
};

const EVENTS_AT_ONCE: usize = 128;
/// Requests sent before looking at answers again, so that catching up cannot starve reading.
const SENDS_AT_ONCE: usize = 64;
/// Connections made before the first request is due.
const READY_CONNECTIONS: usize = 32;
const READY_WITHIN: Duration = Duration::from_secs(1);
/// A wait this short is spent looking for answers: to set a timer and be woken by it takes as long.
const SPIN: Duration = Duration::from_micros(20);
/// How often progress is told and the wish to stop is looked at.
const TICK: Duration = Duration::from_millis(250);

impl Engine<'_> {
    pub(super) fn get_ready(&mut self) -> Result<(), EngineError> {
        for _ in 0..READY_CONNECTIONS.min(self.plan.connections) {
            if !matches!(self.pool.open(&self.epoll), Some(Ok(_))) {
                break;
            }
        }
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        let until = clock::now() + READY_WITHIN;
        while clock::now() < until && self.pool.sockets().any(|socket| socket.connecting) {
            self.wait(&mut events, until)?;
            for event in events.drain(..) {
                self.handle(&event);
            }
        }
        Ok(())
    }

    pub(super) fn drive(&mut self, control: &mut Control<'_>) -> Result<(), EngineError> {
        self.processor = clock::processor();
        self.started = clock::now();
        self.ends = self.started + self.plan.warmup + self.plan.length;
        self.told.at = self.started;
        if let Pacing::Closed { clients } = self.plan.pacing {
            self.respawn = clients;
        }
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        let mut tick = self.started + TICK;
        loop {
            let now = clock::now();
            self.send_due(now);
            if now >= tick {
                (control.tell)(self.live(now));
                tick = now + TICK;
                if control.stop.load(Ordering::Relaxed) {
                    self.ends = self.ends.min(now);
                    return Ok(());
                }
            }
            if self.is_over(now) {
                return Ok(());
            }
            self.wait(&mut events, tick.min(self.next_due()))?;
            for event in events.drain(..) {
                self.handle(&event);
                self.send_due(clock::now());
            }
        }
    }

    fn is_over(&self, now: Duration) -> bool {
        let all_sent = match &self.schedule {
            Some(schedule) => schedule.peek().is_none(),
            None => now >= self.ends,
        };
        (all_sent && self.in_flight == 0) || now >= self.ends + self.plan.grace
    }

    fn next_due(&self) -> Duration {
        let next = self.schedule.as_ref().and_then(Schedule::peek);
        next.map_or(self.ends + self.plan.grace, |at| self.started + at)
    }

    /// Sleeps until something happens or `until`, to the precision of the kernel's timers.
    fn wait(&mut self, events: &mut Vec<Event>, until: Duration) -> Result<(), EngineError> {
        let soon = until <= clock::now() + SPIN;
        if !soon && until != self.armed {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let at = Timespec::try_from(until).expect("a moment of this run fits");
            let value = Itimerspec { it_interval: zero, it_value: at };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value)
                .map_err(cannot("set a timer"))?;
            self.armed = until;
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = soon.then_some(&at_once);
        match epoll::wait(&self.epoll, spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(source) => Err(EngineError { what: "wait for events", source }),
        }
    }

    fn send_due(&mut self, now: Duration) {
        for _ in 0..SENDS_AT_ONCE {
            let Some((due, stream)) = self.pop_due(now) else {
                return;
            };
            let count = self.plan.streams[stream].requests.len();
            let variant = self.variants[stream];
            self.variants[stream] = (variant + 1) % count;
            self.in_flight += 1;
            self.dispatch(Flight { stream, variant, due, again: false });
        }
    }

    fn pop_due(&mut self, now: Duration) -> Option<(Duration, usize)> {
        if let Some(schedule) = &mut self.schedule {
            let next = self.started + schedule.peek()?;
            return (next <= now).then(|| schedule.pop()).flatten().map(|due| (next, due.1));
        }
        if self.respawn == 0 || now >= self.ends {
            return None;
        }
        self.respawn -= 1;
        Some((now, self.weighted_stream()))
    }

    fn weighted_stream(&mut self) -> usize {
        let rate = |stream: &Stream| stream.source.rate_rps(self.plan.length);
        let total: f64 = self.plan.streams.iter().map(rate).sum();
        let mut left = self.random.unit() * total;
        let chosen = self.plan.streams.iter().position(|stream| {
            left -= rate(stream);
            left <= 0.0
        });
        chosen.unwrap_or(0)
    }
}

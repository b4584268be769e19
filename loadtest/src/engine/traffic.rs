//! What happens to a request: onto a connection, off it, and into the count.

use rustix::{
    event::epoll::{Event, EventFlags},
    io::Errno,
};

use super::{
    Engine,
    socket::{Flight, Progress},
};
use crate::{
    clock,
    tally::{Outcome, Reply},
};

/// Most requests that may wait in the client for a connection.
const MAX_WAITING: usize = 1 << 20;

impl Engine<'_> {
    pub(super) fn dispatch(&mut self, flight: Flight) {
        // A request that met a dead idle connection takes a new one, for the rest may be dead too.
        if !flight.again
            && let Some(token) = self.pool.take_idle()
        {
            return self.start(token, flight);
        }
        let others = self.pool.is_open();
        match self.pool.open(&self.epoll) {
            Some(Ok(socket)) => socket.flight = Some(flight),
            // Out of descriptors is a limit on connections like any other, if there are any.
            Some(Err(Errno::MFILE)) if others => self.keep(flight),
            Some(Err(_)) => self.end(flight, Reply::NoConnection),
            None => self.keep(flight),
        }
    }

    fn keep(&mut self, flight: Flight) {
        if self.waiting.len() == MAX_WAITING {
            return self.end(flight, Reply::Unsent);
        }
        self.waited += u64::from(flight.due >= self.started + self.plan.warmup);
        self.waiting.push_back(flight);
    }

    fn start(&mut self, token: u64, flight: Flight) {
        let Some(socket) = self.pool.get(token) else {
            return self.dispatch(flight);
        };
        socket.flight = Some(flight);
        let request = &self.plan.streams[flight.stream].requests[flight.variant];
        match socket.send(&self.epoll, request) {
            Ok(began) => {
                if flight.due >= self.started + self.plan.warmup {
                    let lag = began.saturating_sub(flight.due).as_micros();
                    self.send_lag_us.saturating_record(u64::try_from(lag).unwrap_or(u64::MAX));
                }
            }
            Err(_) => self.broken(token, Reply::Broken),
        }
    }

    pub(super) fn handle(&mut self, event: &Event) {
        let Event { flags, data } = *event;
        let token = data.u64();
        let Some(socket) = self.pool.get(token) else {
            return;
        };
        if socket.connecting {
            return self.handshake(token);
        }
        if flags.contains(EventFlags::OUT)
            && socket.is_sending()
            && let Some(flight) = socket.flight
        {
            let request = &self.plan.streams[flight.stream].requests[flight.variant];
            if socket.send(&self.epoll, request).is_err() {
                return self.broken(token, Reply::Broken);
            }
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(token);
        }
    }

    fn handshake(&mut self, token: u64) {
        let Some(socket) = self.pool.get(token) else {
            return;
        };
        if !socket.connected(&self.epoll) {
            return self.broken(token, Reply::NoConnection);
        }
        match socket.flight {
            Some(flight) => self.start(token, flight),
            None => self.free(token),
        }
    }

    fn receive(&mut self, token: u64) {
        let Some(socket) = self.pool.get(token) else {
            return;
        };
        match socket.receive(&self.epoll, &mut self.buffer) {
            Progress::Waiting => {}
            Progress::Broken => self.broken(token, Reply::Broken),
            Progress::Answered(answer) => {
                let flight = socket.flight.take();
                let unasked = flight.is_none();
                if let Some(flight) = flight {
                    self.end(flight, Reply::Status(answer.status));
                }
                if answer.close || unasked {
                    self.broken(token, Reply::Broken);
                } else {
                    self.free(token);
                }
            }
        }
    }

    fn free(&mut self, token: u64) {
        match self.waiting.pop_front() {
            Some(flight) => self.start(token, flight),
            None => self.pool.put_idle(token),
        }
    }

    /// A connection is gone; its request, if any, is sent again or ends.
    fn broken(&mut self, token: u64, reply: Reply) {
        let Some(socket) = self.pool.close(token) else {
            return;
        };
        if let Some(flight) = socket.flight {
            if socket.may_resend() && !flight.again {
                self.resent += 1;
                self.dispatch(Flight { again: true, ..flight });
            } else {
                self.end(flight, reply);
            }
        }
        if let Some(flight) = self.waiting.pop_front() {
            self.dispatch(flight);
        }
    }

    pub(super) fn end(&mut self, flight: Flight, reply: Reply) {
        let now = clock::now();
        let latency = now.saturating_sub(flight.due);
        self.in_flight -= 1;
        self.respawn += usize::from(self.schedule.is_none());
        let measured_from = self.started + self.plan.warmup;
        let tally = &mut self.tallies[flight.stream];
        let outcome = match flight.due.checked_sub(measured_from) {
            Some(due) => tally.record(due, latency, reply),
            None => reply.outcome(latency, tally.allowed),
        };
        if matches!(outcome, Outcome::InTime | Outcome::Late)
            && (measured_from..self.ends).contains(&now)
        {
            tally.throughput += 1;
        }
        self.told.ended.add(outcome);
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.told.latency_us.saturating_record(micros);
    }
}

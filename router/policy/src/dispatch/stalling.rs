//! Batches that do not come back: their requests are tried elsewhere, and in the end their replica is
//! given up.
//!
//! An executor that hangs keeps its connection, so nothing but time tells. What is far beyond all that
//! was ever seen of a replica is taken for a hang: whoever can still be answered in time by another
//! waits again, and the first answer is the one that counts. Much later the connection is given up
//! with all it holds, as if the executor had died.

use std::time::Duration;

use super::{
    Dispatch, Effect,
    replica::Replica,
    settling::{DEATH, STRIKES_OUT},
};
use crate::{inflight::Flight, moment::Moment, queue::Waiting};

/// A batch stalls when it takes this many times what it hardly ever exceeds,
const STALLED: u32 = 4;
/// and this part of the objective: before that there is no hurry.
const STALLED_SHARE: u32 = 4;
/// How long a replica may leave a batch without an answer, at the least,
const SILENCE_LEAST: Duration = Duration::from_secs(10);
/// and in terms of the objective.
const SILENCE_OBJECTIVES: u32 = 2;

impl Dispatch {
    /// Does what is due about batches that are not back.
    pub(super) fn doubt_stalled(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        for index in 0..self.replicas.len() {
            let Some(running) = &self.replicas[index].running else { continue };
            let (stalled, silent) = (self.stalls_at(running), self.is_silent_at(running));
            if stalled.is_some_and(|at| at <= now) {
                self.try_elsewhere(index, now, effects);
            }
            let replica = &mut self.replicas[index];
            let given_up = silent.is_some_and(|at| at <= now);
            if given_up && let Some(running) = &mut replica.running {
                running.given_up = true;
                effects.push(Effect::GiveUp { replica: replica.id });
            }
        }
    }

    /// When one of these will next be due, for a replica's running batch.
    pub(super) fn doubts_at(&self, running: &Flight) -> Moment {
        let (stalled, silent) = (self.stalls_at(running), self.is_silent_at(running));
        stalled.into_iter().chain(silent).min().unwrap_or(Moment::NEVER)
    }

    fn stalls_at(&self, running: &Flight) -> Option<Moment> {
        let share = self.settings.objective / STALLED_SHARE;
        let at = running.started_at + running.allows.saturating_mul(STALLED).max(share);
        (!running.stalled).then_some(at)
    }

    fn is_silent_at(&self, running: &Flight) -> Option<Moment> {
        let wait = self.settings.objective.saturating_mul(SILENCE_OBJECTIVES).max(SILENCE_LEAST);
        (!running.given_up).then_some(running.started_at + wait)
    }

    /// Has those wait again whom another replica can answer in time, and calls off what waits behind.
    fn try_elsewhere(&mut self, index: usize, now: Moment, effects: &mut Vec<Effect>) {
        let id = self.replicas[index].id;
        if let Some(running) = &mut self.replicas[index].running {
            running.stalled = true;
        }
        let replica = &mut self.replicas[index];
        let flights = [(replica.running.take(), DEATH), (replica.next.take(), 0)];
        let [running, next] = flights.map(|(flight, strikes)| {
            let mut flight = flight?;
            let moved = self.moved(id, &mut flight, strikes, now);
            if !moved.is_empty() {
                effects.push(Effect::Retry { replica: id, batch: flight.batch, requests: moved });
            }
            Some(flight)
        });
        let replica = &mut self.replicas[index];
        (replica.running, replica.next) = (running, next);
        effects.extend(replica.call_off());
    }

    fn moved(&mut self, from: u32, flight: &mut Flight, strikes: u32, now: Moment) -> Vec<u64> {
        let key = flight.key;
        let hopeful = |one: &Waiting| {
            let others = self.in_rotation().filter(|replica| replica.id != from);
            let done_at = |other: &Replica| other.free_at(now) + other.latency(key).low(one.rows);
            let finish = others.map(done_at).min();
            let again = Waiting { strikes: one.strikes + strikes, ..*one };
            let again = finish.and_then(|finish| again.done_at(finish));
            again.filter(|again| again.strikes < STRIKES_OUT).map(|again| (*one, again))
        };
        let moving: Vec<(Waiting, Waiting)> = flight.live().filter_map(hopeful).collect();
        for (one, again) in &moving {
            flight.move_away(one.id);
            self.wait_again(flight.key, *again, one);
        }
        moving.iter().map(|(one, _)| one.id).collect()
    }

    /// Withdraws those of a batch that came back after all from wherever they wait again.
    pub(super) fn recall(&mut self, flight: &Flight, effects: &mut Vec<Effect>) {
        let key = u32::try_from(flight.key).unwrap_or(u32::MAX);
        for one in flight.moved() {
            self.cancel(one.id, key, one.until, effects);
        }
    }
}

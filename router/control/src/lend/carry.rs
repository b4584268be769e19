//! What the decisions mean for the jobs.

use policy::{
    fleet::SliceId,
    job::begin,
    loan::{Act, Start, Stop},
};

use super::world::{Lendable, URGENT, millis};
use crate::{
    clock::whole_ms,
    jobs::{Counts, Record, State, Stopping},
    ledger::{Ledger, Needs},
};

/// The jobs that change.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Before and after.
    pub(super) changes: Vec<(Record, Record)>,
    pub(super) counts: Counts,
}

/// Turns decisions into changes of jobs; slices are taken in the ledger.
pub(super) struct Carry<'a> {
    pub(super) records: &'a [Record],
    pub(super) lendable: &'a Lendable,
    pub(super) ledger: &'a Ledger,
    pub(super) notice_ms: u64,
    pub(super) now_ms: u64,
}

impl Carry<'_> {
    pub(super) fn out(&self, acts: Vec<Act>) -> Carried {
        let mut carried = Carried::default();
        for act in acts {
            let id = match &act {
                Act::Start { job, .. }
                | Act::Renew { job, .. }
                | Act::Grow { job, .. }
                | Act::Shrink { job, .. }
                | Act::Stop { job, .. } => job.0,
            };
            let Some(before) = self.records.iter().find(|record| record.id == id) else { continue };
            let mut after = before.clone();
            self.change(&mut after, &mut carried.counts, act);
            if after != *before {
                carried.changes.push((before.clone(), after));
            }
        }
        carried
    }

    /// Has jobs that were told to stop do so sooner, where requests are lost until then.
    pub(super) fn hasten(&self, needs: &Needs, carried: &mut Carried) {
        let by_ms = self.now_ms + whole_ms(URGENT);
        let urgent = |seat: &SliceId| {
            needs.wanted.iter().any(|want| want.urgent && want.seats.contains(seat))
        };
        for record in self.records {
            let Some(stop) = record.life.stop.as_ref().filter(|stop| stop.by_ms > by_ms) else {
                continue;
            };
            let given = record.life.seats.iter().filter(|seat| !stop.seats.contains(seat));
            let told = carried.changes.iter().any(|(before, _)| before.id == record.id);
            if told || !given.into_iter().any(urgent) {
                continue;
            }
            let why = Stop::Inference { emergency: true };
            let notice_ms = stop.notice_ms.min(whole_ms(URGENT));
            let sooner = Stopping { by_ms, notice_ms, reason: why.to_string(), ..stop.clone() };
            let mut after = record.clone();
            after.life.stop(record.life.state, sooner, self.now_ms);
            count(&mut carried.counts, why);
            carried.changes.push((record.clone(), after));
        }
    }

    fn change(&self, after: &mut Record, counts: &mut Counts, act: Act) {
        match act {
            Act::Start { slices, why, .. } => self.start(after, &slices, why),
            // A loan is renewed by its worker for as long as there is a router.
            Act::Renew { .. } => {}
            Act::Grow { slices, .. } => {
                let more = self.seats(&slices);
                let seats: Vec<SliceId> = after.life.seats.iter().cloned().chain(more).collect();
                if self.ledger.lend(after.id, &seats) {
                    let reason = format!("grows to {} slices", seats.len());
                    let by_ms = self.now_ms + self.notice_ms;
                    let stop = self.resized(seats, reason, by_ms);
                    after.life.stop(State::Noticed, stop, self.now_ms);
                }
            }
            Act::Shrink { slices, by, why, .. } => {
                count(counts, why);
                let given = self.seats(&slices);
                let seats: Vec<SliceId> =
                    after.life.seats.iter().filter(|seat| !given.contains(seat)).cloned().collect();
                let reason = format!("{why}; goes on with {}", seats.len());
                let stop = self.resized(seats, reason, millis(by));
                after.life.stop(State::Shrinking, stop, self.now_ms);
            }
            Act::Stop { by, why, .. } => {
                count(counts, why);
                let by_ms = millis(by);
                let notice_ms = by_ms.saturating_sub(self.now_ms);
                let (then, seats) = (State::Preempted, Vec::new());
                let stop = Stopping { then, seats, reason: why.to_string(), notice_ms, by_ms };
                after.life.stop(State::Noticed, stop, self.now_ms);
            }
        }
    }

    fn start(&self, after: &mut Record, slices: &[usize], why: Start) {
        let seats = self.seats(slices);
        if !self.ledger.lend(after.id, &seats) {
            return;
        }
        if let Start::Promoted { .. } = why {
            after.life.forgiven_gpu_s = after.life.attained_gpu_s;
        }
        after.life.gpus = self.lendable.gpus(&seats);
        begin(&mut after.life, seats, why.to_string(), self.now_ms);
    }

    /// Another width is a stop, and a start from the checkpoint on other slices.
    fn resized(&self, seats: Vec<SliceId>, reason: String, by_ms: u64) -> Stopping {
        let notice_ms = by_ms.saturating_sub(self.now_ms);
        Stopping { then: State::Starting, seats, reason, notice_ms, by_ms }
    }

    fn seats(&self, slices: &[usize]) -> Vec<SliceId> {
        slices.iter().map(|index| self.lendable.seats[*index].clone()).collect()
    }
}

fn count(counts: &mut Counts, why: Stop) {
    match why {
        Stop::Inference { emergency } => {
            counts.for_inference += 1;
            counts.in_emergency += u64::from(emergency);
        }
        Stop::Yields { .. } => counts.for_jobs += 1,
    }
}

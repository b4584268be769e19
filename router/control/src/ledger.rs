//! Who has which slice: replicas, which [`place`](crate::place) puts there, or ranks of jobs.
//!
//! Both loops write here under one lock, so that no slice has two owners: placing holds it for a
//! whole round, lending takes slices only if none of them serves or is to.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use policy::fleet::SliceId;
use protocol::DesiredRank;

use crate::jobs::Record;

/// The slices that are lent and those that serve.
#[derive(Debug, Default)]
pub struct Ledger {
    slices: Mutex<Slices>,
}

/// See [`Ledger`].
#[derive(Debug, Default)]
pub struct Slices {
    lent: BTreeMap<SliceId, u64>,
    ranks: BTreeMap<SliceId, DesiredRank>,
    serving: BTreeSet<SliceId>,
    needs: Needs,
    /// Whether it is known what shall run on what is lent.
    settled: bool,
}

/// What inference needs of the slices it does not hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// What must come back.
    pub wanted: Vec<Wanted>,
    /// Compute slices that must stay idle: what the forecast may ask for beyond what is held.
    pub forecast: u32,
    /// Compute slices that must stay idle: what the failure of one GPU would take away.
    pub reserve: u32,
    /// In how long the forecast would come true.
    pub within: Duration,
}

/// Slices that must come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Those that would do.
    pub seats: Vec<SliceId>,
    /// How many of them.
    pub count: u32,
    /// Whether requests miss their objective until then, so that the usual notice is too long.
    pub urgent: bool,
}

impl Ledger {
    /// What `records` say is lent, before anything is heard of the fleet.
    pub fn of(records: &[Record]) -> Self {
        let ledger = Self::default();
        ledger.reset(records);
        ledger
    }

    /// Begins anew with what `records` say is lent.
    pub fn reset(&self, records: &[Record]) {
        let mut slices = Slices::default();
        for record in records {
            let coming = record.life.stop.iter().flat_map(|stop| &stop.seats);
            let seats = record.life.seats.iter().chain(coming).cloned();
            slices.lent.extend(seats.map(|seat| (seat, record.id)));
        }
        *self.slices.lock() = slices;
    }

    /// Everything, for as long as the guard lives.
    pub fn lock(&self) -> MutexGuard<'_, Slices> {
        self.slices.lock()
    }

    /// Takes `seats` for a job, all or none.
    pub fn lend(&self, job: u64, seats: &[SliceId]) -> bool {
        let mut slices = self.slices.lock();
        let Slices { lent, serving, .. } = &mut *slices;
        let free = |seat: &SliceId| {
            !serving.contains(seat) && lent.get(seat).is_none_or(|holder| *holder == job)
        };
        let all = seats.iter().all(free);
        if all {
            lent.extend(seats.iter().map(|seat| (seat.clone(), job)));
        }
        all
    }

    /// Sets what jobs have and what shall run there; whether that is news.
    pub fn settle(
        &self,
        lent: BTreeMap<SliceId, u64>,
        ranks: BTreeMap<SliceId, DesiredRank>,
    ) -> bool {
        let mut slices = self.slices.lock();
        let news = !slices.settled || slices.lent != lent || slices.ranks != ranks;
        (slices.lent, slices.ranks, slices.settled) = (lent, ranks, true);
        news
    }

    /// What inference needs.
    pub fn needs(&self) -> Needs {
        self.slices.lock().needs.clone()
    }
}

impl Slices {
    /// Whether it is known what shall run on what is lent; before that, telling workers what shall be
    /// would end what runs there.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Whether a job has this slice.
    pub fn is_lent(&self, seat: &SliceId) -> bool {
        self.lent.contains_key(seat)
    }

    /// The job that has the slice at a position of a worker's GPU, if one has.
    pub fn job(&self, worker: &str, gpu: u32, position: &str) -> Option<u64> {
        let seat = SliceId { worker: worker.to_owned(), gpu, position: position.to_owned() };
        self.lent.get(&seat).copied()
    }

    /// Whether a replica is there or shall be.
    pub fn serves(&self, seat: &SliceId) -> bool {
        self.serving.contains(seat)
    }

    /// The ranks that shall be on a worker.
    pub fn ranks(&self, worker: &str) -> impl Iterator<Item = (&SliceId, &DesiredRank)> {
        self.ranks.iter().filter(move |(seat, _)| seat.worker == worker)
    }

    /// Sets which slices have replicas, and what else inference needs.
    pub fn serve(&mut self, serving: BTreeSet<SliceId>, needs: Needs) {
        (self.serving, self.needs) = (serving, needs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(position: &str) -> SliceId {
        SliceId { worker: "local".into(), gpu: 0, position: position.into() }
    }

    #[test]
    fn no_slice_has_two_owners() {
        let ledger = Ledger::default();
        ledger.lock().serve([seat("a")].into(), Needs::default());
        assert!(!ledger.lend(1, &[seat("a")]), "it serves");
        assert!(!ledger.lend(1, &[seat("b"), seat("a")]), "all or none");
        assert!(ledger.lend(1, &[seat("b")]));
        assert!(!ledger.lend(2, &[seat("b")]), "another has it");
        assert!(ledger.lend(1, &[seat("b"), seat("c")]), "a job may keep what it has");
        assert!(ledger.lock().is_lent(&seat("c")));
    }
}

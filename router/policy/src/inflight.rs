//! A batch on its way to or on a replica.

use std::time::Duration;

use crate::{
    moment::Moment,
    queue::{Priority, Waiting},
};

#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) batch: u64,
    pub(crate) key: usize,
    pub(crate) sent_at: Moment,
    /// When it reached the front of its replica: sent, or when the batch before it ended.
    pub(crate) started_at: Moment,
    pub(crate) rows: u32,
    /// Whether the batch limit allowed no more of those who can be in time.
    pub(crate) full: bool,
    /// When the first of those is due; never if all are late.
    pub(crate) due_at: Moment,
    pub(crate) expects: Duration,
    pub(crate) allows: Duration,
    /// The earliest deadline of those still waiting for it.
    soonest: Moment,
    called_off: bool,
    /// Whether it takes so long that its requests are tried elsewhere.
    pub(crate) stalled: bool,
    /// Whether its replica was given up over it.
    pub(crate) given_up: bool,
    members: Vec<Member>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    waiting: Waiting,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    /// Waiting again, while the batch is not back.
    Elsewhere,
    /// Answered already: its client left or its deadline passed.
    Gone,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) batch: u64,
    pub(crate) key: usize,
    pub(crate) now: Moment,
    pub(crate) start: Moment,
    pub(crate) full: bool,
    pub(crate) expects: Duration,
    pub(crate) allows: Duration,
}

impl Flight {
    pub(crate) fn new(departure: Departure, taken: &[Waiting]) -> Self {
        let timely = taken.iter().filter(|waiting| waiting.priority != Priority::Late);
        let due_at = timely.map(Waiting::by).min().unwrap_or(Moment::NEVER);
        let deadlines = taken.iter().map(|waiting| waiting.until.deadline);
        let soonest = deadlines.min().unwrap_or(Moment::NEVER);
        Self {
            batch: departure.batch,
            key: departure.key,
            sent_at: departure.now,
            started_at: departure.start,
            rows: taken.iter().map(|waiting| waiting.rows).sum(),
            full: departure.full,
            due_at,
            expects: departure.expects,
            allows: departure.allows,
            soonest,
            called_off: false,
            stalled: false,
            given_up: false,
            members: taken
                .iter()
                .map(|waiting| Member { waiting: *waiting, place: Place::Here })
                .collect(),
        }
    }

    pub(crate) fn expected_end(&self) -> Moment {
        self.started_at + self.expects
    }

    /// Whether all in it can only be late.
    pub(crate) fn is_late(&self) -> bool {
        self.due_at == Moment::NEVER
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.members.iter().map(|member| member.waiting.id)
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Waiting> {
        self.at(Place::Here)
    }

    pub(crate) fn moved(&self) -> impl Iterator<Item = &Waiting> {
        self.at(Place::Elsewhere)
    }

    pub(crate) fn move_away(&mut self, id: u64) {
        self.put(id, Place::Elsewhere);
    }

    /// The earliest deadline of those still waiting for it; never if nobody is.
    pub(crate) fn soonest_deadline(&self) -> Moment {
        self.soonest
    }

    pub(crate) fn release(&mut self, id: u64) -> bool {
        self.put(id, Place::Gone)
    }

    /// Marks those given up at or before `deadline` answered, handing each to `late`.
    pub(crate) fn expire(&mut self, deadline: Moment, mut late: impl FnMut(&Waiting)) {
        for member in self.members.iter_mut().filter(|member| member.place == Place::Here) {
            if member.waiting.until.deadline <= deadline {
                member.place = Place::Gone;
                late(&member.waiting);
            }
        }
        self.look_again();
    }

    /// Whether nobody waits for it any more and its replica has not been told; true only once.
    pub(crate) fn call_off(&mut self) -> bool {
        let first = !self.called_off && self.soonest == Moment::NEVER;
        self.called_off |= first;
        first
    }

    /// Lets its members share a batch with no more than `most` from now on.
    pub(crate) fn allow_company(&mut self, most: u32) {
        for member in &mut self.members {
            member.waiting.company = member.waiting.company.min(most);
        }
    }

    fn at(&self, place: Place) -> impl Iterator<Item = &Waiting> {
        let there = move |member: &&Member| member.place == place;
        self.members.iter().filter(there).map(|member| &member.waiting)
    }

    fn put(&mut self, id: u64, place: Place) -> bool {
        let mut here = self.members.iter_mut().filter(|one| one.place == Place::Here);
        let Some(member) = here.find(|one| one.waiting.id == id) else { return false };
        member.place = place;
        self.look_again();
        true
    }

    fn look_again(&mut self) {
        let deadlines = self.live().map(|waiting| waiting.until.deadline);
        self.soonest = deadlines.min().unwrap_or(Moment::NEVER);
    }
}

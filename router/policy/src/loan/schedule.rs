//! Who starts, and who waits for what.

use super::{
    Act, Ask, Loaning, Phase, Start, Wait, Why, free_slices::Desk, preemption::Makers,
    reserve::Reservation,
};
use crate::moment::Moment;

/// Starts all who can start, in their order; the first who cannot has a reservation.
pub(super) fn run(desk: &mut Desk<'_>) -> Option<Reservation> {
    desk.divide();
    let mut pass = Pass::new(desk);
    for job in queue(desk) {
        match pass.consider(desk, job) {
            Outcome::Starts => {}
            Outcome::Waits(why, may_start) => {
                let job = desk.world.jobs[job].id;
                desk.decisions.waits.push(Wait { job, why, may_start });
            }
        }
    }
    pass.head
}

/// Every job that does not run, in the order.
fn queue(desk: &Desk<'_>) -> Vec<usize> {
    let waits = |job: &usize| match desk.world.jobs[*job].phase {
        Phase::Waiting { .. } | Phase::Leaving => true,
        Phase::Running { .. } => false,
    };
    let mut queue: Vec<usize> = (0..desk.world.jobs.len()).filter(waits).collect();
    queue.sort_by(|a, b| desk.places[*a].cmp(&desk.places[*b]));
    queue
}

/// What becomes of a job whose turn it is.
enum Outcome {
    Starts,
    Waits(Why, Option<Moment>),
}

struct Pass {
    head: Option<Reservation>,
    /// Jobs that could not start although it was their turn.
    blocked: u32,
    held: Vec<u32>,
    makers: Makers,
    /// How many slices there are that suit an ask, by size and memory.
    exist: Vec<((u8, u64), u32)>,
}

impl Pass {
    fn new(desk: &Desk<'_>) -> Self {
        let mut held = vec![0; desk.world.tenants.len()];
        for (job, slices) in desk.world.jobs.iter().zip(&desk.held) {
            if let Some(held) = held.get_mut(job.ask.tenant) {
                *held += count(slices.len());
            }
        }
        Self { head: None, blocked: 0, held, makers: Makers::new(desk), exist: Vec::new() }
    }

    fn consider(&mut self, desk: &mut Desk<'_>, job: usize) -> Outcome {
        if desk.world.jobs[job].phase == Phase::Leaving {
            return Outcome::Waits(Why::Stopping, None);
        }
        if desk.rules.loaning == Loaning::None {
            return Outcome::Waits(Why::NotLent, None);
        }
        if let Some(why) = self.impossible(desk, &desk.world.jobs[job].ask) {
            return Outcome::Waits(why, None);
        }
        match self.head {
            Some(head) => self.behind(desk, job, head),
            None => self.first(desk, job),
        }
    }

    /// Why nothing that other jobs do can start it.
    fn impossible(&mut self, desk: &Desk<'_>, ask: &Ask) -> Option<Why> {
        let key = (ask.compute, ask.memory_mib);
        let known = self.exist.iter().find(|(other, _)| *other == key).map(|(_, exist)| *exist);
        let exist = known.unwrap_or_else(|| {
            let exist = count(desk.world.slices.iter().filter(|slice| ask.suits(slice)).count());
            self.exist.push((key, exist));
            exist
        });
        if exist < ask.least {
            return Some(Why::TooFew { needs: ask.least, exist });
        }
        let tenant = desk.world.tenants.get(ask.tenant)?;
        let (needs, held, quota) = (ask.least, self.held[ask.tenant], tenant.quota);
        (held.saturating_add(needs) > quota).then_some(Why::Quota { needs, held, quota })
    }

    /// What a job can do while nobody before it is blocked: all that there is, and have others make
    /// room.
    fn first(&mut self, desk: &mut Desk<'_>, job: usize) -> Outcome {
        if let Some(outcome) = self.give(desk, job) {
            return outcome;
        }
        if self.makers.make(desk, job)
            && let Some(outcome) = self.give(desk, job)
        {
            return outcome;
        }
        let reservation = Reservation::new(desk, job);
        self.head = Some(reservation);
        self.blocked += 1;
        let ask = &desk.world.jobs[job].ask;
        let suited = desk.free.iter().filter(|one| ask.suits(&desk.world.slices[**one])).count();
        Outcome::Waits(Why::TooFewIdle { needs: ask.least, idle: count(suited) }, reservation.at)
    }

    /// What a job can do behind the one that is first and cannot start: fill what that one does not
    /// need.
    fn behind(&mut self, desk: &mut Desk<'_>, job: usize, head: Reservation) -> Outcome {
        if self.backfill(desk, job, head) {
            return Outcome::Starts;
        }
        let why = Why::Behind { ahead: self.blocked, first: head.id };
        self.blocked += 1;
        Outcome::Waits(why, None)
    }

    /// Starts it on idle slices, or else keeps those that come for it.
    fn give(&mut self, desk: &mut Desk<'_>, job: usize) -> Option<Outcome> {
        let ask = &desk.world.jobs[job].ask;
        if let Some(slices) = desk.choice().best(&desk.free, ask, ask.least) {
            self.start(desk, job, slices, Start::First);
            return Some(Outcome::Starts);
        }
        let slices = desk.choice().best(&desk.available(), ask, ask.least)?;
        let due = |slice: &usize| desk.coming.iter().find(|(coming, _)| coming == slice);
        let dues: Vec<Moment> = slices.iter().filter_map(due).map(|(_, by)| *by).collect();
        desk.give_away(job, &slices);
        self.blocked += 1;
        Some(Outcome::Waits(Why::Coming { count: count(dues.len()) }, dues.into_iter().max()))
    }

    /// Starts it behind the reservation, if that delays nobody.
    fn backfill(&mut self, desk: &mut Desk<'_>, job: usize, head: Reservation) -> bool {
        let ask = &desk.world.jobs[job].ask;
        if !desk.rules.order.backfills() || desk.free.len() < ask.least as usize {
            return false;
        }
        let left = head.leaves(desk, job);
        let Some(slices) = desk.choice().best(&left, ask, ask.least) else { return false };
        if let Some(head) = &mut self.head {
            head.took(desk, job, &slices);
        }
        self.start(desk, job, slices, Start::Backfills { ahead: head.id });
        true
    }

    fn start(&mut self, desk: &mut Desk<'_>, job: usize, slices: Vec<usize>, why: Start) {
        let world = desk.world;
        desk.give_away(job, &slices);
        if let Some(held) = self.held.get_mut(world.jobs[job].ask.tenant) {
            *held += count(slices.len());
        }
        let waited = world.jobs[job].waited(world.now).unwrap_or_default();
        let why = if desk.places[job].is_starving() { Start::Promoted { waited } } else { why };
        let lease_until = world.now + desk.rules.lease;
        let job = world.jobs[job].id;
        desk.decisions.acts.push(Act::Start { job, slices, lease_until, why });
    }
}

fn count(slices: usize) -> u32 {
    u32::try_from(slices).unwrap_or(u32::MAX)
}

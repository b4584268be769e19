//! Requests that cannot be in time, and that their callers want late.
//!
//! They wait in a line of their own and have what is left after all who can be in time: the room in
//! others' batches and idle replicas, as far as one who comes just after still makes it; and nothing
//! while capacity is scarce, or they would make it scarcer: at 0.8 of what a replica can serve that
//! cost 1.4 points of the share in time. What they take teaches how fast a replica is, and nothing
//! else. When the queue or the memory for bodies is full they are dropped first.

use std::time::Duration;

use super::{Dispatch, Effect, Refusal, forming::Cut, replica::Replica, revoke};
use crate::{
    moment::Moment,
    queue::{Priority, Waiting},
    rule::Bound,
};

/// How soon it is asked again whether capacity is scarce, which ends without an event.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Dispatch {
    /// Turns away one that was let in: it waits on for what is left if its caller wants it late, and
    /// is refused as `why` says otherwise.
    pub(super) fn turn_away(
        &mut self,
        key: usize,
        waiting: Waiting,
        why: Refusal,
        effects: &mut Vec<Effect>,
    ) {
        revoke(&mut self.shares, &waiting);
        match waiting.made_late() {
            Some(late) => self.queues.insert(key, late),
            None => effects.push(Effect::Refuse { id: waiting.id, why }),
        }
    }

    /// Refuses one of those that can only be late, the one that is furthest from being given up.
    /// Says which; none if there is none.
    pub fn drop_late(&mut self, effects: &mut Vec<Effect>) -> Option<u64> {
        let waiting = self.queues.len();
        let last = self.queues.remove_last_late()?;
        effects.push(Effect::Refuse { id: last.id, why: Refusal::Full { waiting } });
        Some(last.id)
    }

    /// Whether all there is to do is to serve who is late.
    fn only_late_wait(&self) -> bool {
        !self.queues.iter().any(|(_, queue)| queue.has_timely())
    }

    /// The batch of late ones for `taker` out of the queue of `key`, if it is idle and nobody is
    /// left waiting who can be in time; or when to ask again.
    pub(super) fn late_cut(&self, key: usize, taker: usize, now: Moment) -> Result<Cut, Moment> {
        let replica = &self.replicas[taker];
        if replica.running.is_some() || !self.only_late_wait() {
            return Err(Moment::NEVER);
        }
        if self.is_scarce(now) {
            return Err(now + LOOK_AGAIN);
        }
        let view = self.view(key, taker, Priority::Late, now);
        let rows = self.room_for_late(key, taker, now).min(view.limit);
        let fits = view.line.iter().position(|waiting| waiting.rows <= rows);
        let skip = fits.ok_or(Moment::NEVER)?;
        let fit = view.fit(skip, rows);
        let all = skip + fit.count == view.line.len();
        let bound = if all { Bound::Waiting } else { Bound::Limit };
        let leads = Priority::Late;
        Ok(Cut { taker, key, leads, skip, take: fit.count, drop_skipped: false, bound })
    }

    /// The most rows a batch with late ones in it may hold on `taker`: so few that one who just missed
    /// it has time for its own, or has another replica to go to.
    fn room_for_late(&self, key: usize, taker: usize, now: Moment) -> u32 {
        let free = |(index, other): (usize, &Replica)| {
            index != taker && other.running.is_none() && other.is_working(now)
        };
        let elsewhere = self.replicas.iter().enumerate().any(free);
        let replica = &self.replicas[taker];
        let rows = replica.latency(key).largest_within(self.allowed() / 2);
        rows.max(u32::from(elsewhere))
    }

    /// Adds late requests in the room that is left when all others have theirs.
    pub(super) fn fill_with_late(&mut self, taken: &mut Vec<Waiting>, cut: Cut, now: Moment) {
        let Some(queue) = self.queues.get(cut.key) else { return };
        if queue.late.is_empty() || cut.leads == Priority::Late || self.is_scarce(now) {
            return;
        }
        let replica = &self.replicas[cut.taker];
        let start = replica.free_at(now);
        let most = self.room_for_late(cut.key, cut.taker, now).min(self.cap(replica, cut.key));
        let mut due = taken.iter().map(Waiting::by).min().unwrap_or(Moment::NEVER);
        let mut rows: u32 = taken.iter().map(|waiting| waiting.rows).sum();
        let mut company = taken.iter().map(|one| one.company).min().unwrap_or(u32::MAX);
        let mut joining = 0;
        for late in queue.late.iter() {
            due = due.min(late.by());
            rows = rows.saturating_add(late.rows);
            company = company.min(late.company);
            let done_at = start + replica.latency(cut.key).high(rows) + self.settings.margin;
            if rows > most || taken.len() + joining >= company as usize || done_at > due {
                break;
            }
            joining += 1;
        }
        taken.extend(self.line_mut(cut.key, Priority::Late).take(joining));
    }
}

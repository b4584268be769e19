//! Turning waiting requests into batches, and away those that cannot be saved.

use std::cmp::Reverse;

use super::{Batch, ClosedBy, Dispatch, Effect, GRACE, Refusal, revoke};
use crate::{
    inflight::{Departure, Flight},
    moment::Moment,
    queue::{Line, Priority, Queue, Waiting},
    rule::{Bound, Decision, View},
};

/// Which queue is served first: by the highest priority in it, then by deadline, then by key.
type Urgency = (Reverse<Priority>, Moment, usize);

/// Which replica is given a batch first: by the end of a batch of one row, then by its place.
type Nearness = (Moment, usize);

/// Who is to be in a batch, and where it goes.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    pub(super) taker: usize,
    pub(super) key: usize,
    pub(super) leads: Priority,
    pub(super) skip: usize,
    pub(super) take: usize,
    pub(super) drop_skipped: bool,
    pub(super) bound: Bound,
}

impl Dispatch {
    /// Does all that can be done at `now`, and works out when to be called again.
    pub(super) fn pump(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.expire(now, effects);
        self.doubt_stalled(now, effects);
        if self.replicas.iter().all(|replica| replica.draining) {
            self.refuse_all(effects);
        }
        let ask_again = loop {
            if self.rule.predicts() {
                self.shed_hopeless(now, effects);
            }
            match self.choose(now) {
                Ok(cut) => self.form(cut, now, effects),
                Err(ask_again) => break ask_again,
            }
        };
        self.queues.tidy();
        self.wakes_at = self.next_event(now).min(ask_again);
    }

    /// Answers those whose deadline has come, on replicas too; who is only due can still be late.
    fn expire(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let mut expired = Vec::new();
        self.queues.shed(|_, head| head.by() <= now, |key, waiting| expired.push((key, waiting)));
        for (key, waiting) in expired {
            let finish = self.soonest_finish(key, waiting.rows, now).unwrap_or(Moment::NEVER);
            let why = why_given_up(&waiting, finish + self.settings.margin, now);
            if waiting.until.deadline > now {
                self.turn_away(key, waiting, why, effects);
            } else {
                revoke(&mut self.shares, &waiting);
                effects.push(Effect::Refuse { id: waiting.id, why });
            }
        }
        let margin = self.settings.margin;
        for replica in &mut self.replicas {
            for flight in replica.flights_mut() {
                if flight.soonest_deadline() + GRACE <= now {
                    let finish = flight.expected_end().max(now) + margin;
                    flight.expire(now - GRACE, |late| {
                        let why = why_given_up(late, finish, now);
                        effects.push(Effect::Refuse { id: late.id, why });
                    });
                }
            }
            effects.extend(replica.call_off());
        }
    }

    /// Turns away those at the head that no replica can finish in time even alone.
    fn shed_hopeless(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.queues.is_empty() {
            return;
        }
        // The lines are taken out to be changed while the replicas are asked.
        let mut queues = std::mem::take(&mut self.queues);
        let done = |key, head: &Waiting| {
            let finish = self.soonest_finish(key, head.rows, now).unwrap_or(Moment::NEVER);
            finish + self.settings.margin
        };
        let count = queues.len();
        let mut hopeless = Vec::new();
        queues.shed(
            |key, head| done(key, head) > head.by(),
            |key, lost| hopeless.push((key, lost, done(key, &lost))),
        );
        self.queues = queues;
        for (key, lost, finish) in hopeless {
            let why = self.why_lost(key, &lost, (finish, count), now);
            self.turn_away(key, lost, why, effects);
        }
    }

    /// Why `waiting` is turned away if it could be done at `finish` at best, while `count` wait.
    fn why_lost(
        &self,
        key: usize,
        waiting: &Waiting,
        (finish, count): (Moment, usize),
        now: Moment,
    ) -> Refusal {
        let predicted = finish.since(waiting.arrived);
        if is_too_short(waiting, finish) {
            return Refusal::TooShort { predicted };
        }
        let retry_after = self.soonest(key, 1, now).map_or(now, |(_, start)| start).since(now);
        Refusal::Overloaded { waiting: count, predicted, retry_after }
    }

    /// The next batch, or when to ask again if none is to be sent now.
    ///
    /// Queues are tried by urgency and replicas by nearness, until a rule would send.
    fn choose(&self, now: Moment) -> Result<Cut, Moment> {
        let mut ask_again = Moment::NEVER;
        let mut queue = None;
        while let Some(urgency) = self.next_queue(queue) {
            queue = Some(urgency);
            let mut taker = None;
            while let Some(nearness) = self.next_taker(urgency.2, taker, now) {
                taker = Some(nearness);
                match self.cut(urgency.2, nearness.1, now) {
                    Ok(cut) if !self.can_wait(cut) => return Ok(cut),
                    // The answer it would wait for has everything looked at again.
                    Ok(_) => {}
                    Err(until) => ask_again = ask_again.min(until),
                }
            }
            if taker.is_none() {
                break;
            }
        }
        Err(ask_again)
    }

    /// Whether a batch that could be larger had better wait for the one before it: an answer that
    /// comes as soon as a batch gets there leaves no gap to be filled.
    fn can_wait(&self, cut: Cut) -> bool {
        let replica = &self.replicas[cut.taker];
        let brief = |flight: &Flight| flight.expects <= self.settings.lead;
        if cut.bound == Bound::Limit || !replica.running.as_ref().is_some_and(brief) {
            return false;
        }
        let members = self.queue(cut.key).of(cut.leads).iter().skip(cut.skip).take(cut.take);
        members.map(|waiting| waiting.rows).sum::<u32>() < self.cap(replica, cut.key)
    }

    /// The batch for `taker` out of the queue of `key`, or when to ask again.
    fn cut(&self, key: usize, taker: usize, now: Moment) -> Result<Cut, Moment> {
        let mut ask_again = Moment::NEVER;
        for leads in self.queue(key).leaders() {
            if leads == Priority::Late {
                return self.late_cut(key, taker, now);
            }
            match self.rule.decide(&self.view(key, taker, leads, now)) {
                Decision::Wait { until } => ask_again = ask_again.min(until),
                Decision::Send { skip, take, drop_skipped, bound } => {
                    return Ok(Cut { taker, key, leads, skip, take, drop_skipped, bound });
                }
            }
        }
        Err(ask_again)
    }

    /// What there is to know for a batch of those of `priority` in the queue of `key`.
    ///
    /// To those who are protected capacity is never scarce: the others make way.
    pub(super) fn view(
        &self,
        key: usize,
        taker: usize,
        priority: Priority,
        now: Moment,
    ) -> View<'_> {
        let replica = &self.replicas[taker];
        View {
            now,
            start: replica.free_at(now),
            line: self.queue(key).of(priority),
            limit: self.limit(replica, key),
            latency: replica.latency(key),
            objective: self.settings.objective,
            margin: self.settings.margin,
            replicas: self.in_rotation().count() as u32,
            scarce: priority != Priority::Protected && self.is_scarce(now),
            caution: replica.plan.caution,
        }
    }

    fn form(&mut self, cut: Cut, now: Moment, effects: &mut Vec<Effect>) {
        let start = self.replicas[cut.taker].free_at(now);
        let mut taken = self.take(cut, now, effects);
        if cut.leads == Priority::Protected {
            self.fill_with_others(&mut taken, cut, now, effects);
        }
        let cap = self.cap(&self.replicas[cut.taker], cut.key);
        self.fill_up(&mut taken, cut, start);
        let timely = taken.iter().filter(|waiting| waiting.priority != Priority::Late);
        let timely: u32 = timely.map(|waiting| waiting.rows).sum();
        self.fill_with_late(&mut taken, cut, now);
        let rows: u32 = taken.iter().map(|waiting| waiting.rows).sum();
        // Only a request that is larger by itself goes beyond the maximum: it came before that fell.
        assert!(rows <= self.settings.max_batch || taken.len() == 1, "a batch of {rows} rows");
        let latency = self.replicas[cut.taker].latency(cut.key);
        let departure = Departure {
            batch: self.next_batch,
            key: cut.key,
            now,
            start,
            full: timely >= cap,
            expects: latency.mean(rows),
            allows: latency.allows(rows),
        };
        self.next_batch += 1;
        let flight = Flight::new(departure, &taken);
        effects.push(Effect::Send(self.describe(cut, &flight)));
        self.replicas[cut.taker].send(flight, now);
    }

    fn take(&mut self, cut: Cut, now: Moment, effects: &mut Vec<Effect>) -> Vec<Waiting> {
        let line = self.line_mut(cut.key, cut.leads);
        let skipped: Vec<Waiting> = line.take(cut.skip).collect();
        let taken: Vec<Waiting> = line.take(cut.take).collect();
        assert!(!taken.is_empty(), "a rule sent an empty batch");
        self.pass_over(skipped, cut, now, effects);
        taken
    }

    /// Turns away those passed over for a batch.
    ///
    /// The ones its replica is too slow for stay: another is not.
    pub(super) fn pass_over(
        &mut self,
        skipped: Vec<Waiting>,
        cut: Cut,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        if skipped.is_empty() {
            return;
        }
        let count = self.queues.len();
        let start = self.replicas[cut.taker].free_at(now);
        let soonest = self.soonest(cut.key, 1, now);
        let retry_after = soonest.map_or(now, |(_, start)| start).since(now);
        for waiting in skipped {
            let takes = self.replicas[cut.taker].latency(cut.key).low(waiting.rows);
            let done_at = start + takes + self.settings.margin;
            if !cut.drop_skipped || done_at > waiting.by() {
                self.queues.insert(cut.key, waiting);
                continue;
            }
            let predicted = done_at.since(waiting.arrived);
            let why = Refusal::Overloaded { waiting: count, predicted, retry_after };
            self.turn_away(cut.key, waiting, why, effects);
        }
    }

    fn queue(&self, key: usize) -> &Queue {
        self.queues.get(key).expect("a queue that was just found")
    }

    pub(super) fn line_mut(&mut self, key: usize, priority: Priority) -> &mut Line {
        self.queues.get_mut(key).expect("a queue that was just found").line(priority)
    }

    fn describe(&self, cut: Cut, flight: &Flight) -> Batch {
        let replica = &self.replicas[cut.taker];
        let others = cut.leads == Priority::Protected && !self.queue(cut.key).main.is_empty();
        let closed_by = match cut.bound {
            Bound::Limit => ClosedBy::Full,
            Bound::Deadline | Bound::Waiting if flight.full => ClosedBy::Full,
            Bound::Deadline => ClosedBy::Deadline,
            Bound::Waiting if others => ClosedBy::Deadline,
            Bound::Waiting
                if self.queues.iter().any(|(key, queue)| key != cut.key && !queue.is_empty()) =>
            {
                ClosedBy::Shape
            }
            Bound::Waiting => ClosedBy::IdleReplica,
        };
        Batch {
            id: flight.batch,
            replica: replica.id,
            requests: flight.ids().collect(),
            rows: flight.rows,
            ends: flight.expected_end(),
            closed_by,
        }
    }

    /// The first queue after `last` in order of urgency.
    fn next_queue(&self, last: Option<Urgency>) -> Option<Urgency> {
        self.queues
            .iter()
            .filter_map(|(key, queue)| {
                let leads = queue.leaders().next()?;
                Some((Reverse(leads), queue.of(leads).head()?.by(), key))
            })
            .filter(|urgency| last.is_none_or(|last| *urgency > last))
            .min()
    }

    /// The first replica after `last`, in order of nearness, that can take a batch.
    fn next_taker(&self, key: usize, last: Option<Nearness>, now: Moment) -> Option<Nearness> {
        let lead = self.settings.lead;
        let replicas = self.replicas.iter().enumerate();
        replicas
            .filter(|(_, replica)| replica.takes_at(now, lead))
            .map(|(index, replica)| (replica.free_at(now) + replica.latency(key).mean(1), index))
            .filter(|nearness| last.is_none_or(|last| *nearness > last))
            .min()
    }

    /// When something will happen by itself: an expiry, a lost cause, a replica about to be free.
    fn next_event(&self, now: Moment) -> Moment {
        let mut soonest = Moment::NEVER;
        for (key, queue) in self.queues.iter() {
            for head in queue.lines().into_iter().filter_map(|line| line.head()) {
                soonest = soonest.min(self.last_call(key, head, now));
            }
        }
        for replica in &self.replicas {
            for flight in replica.flights() {
                soonest = soonest.min(flight.soonest_deadline() + GRACE);
            }
            if let Some(running) = &replica.running {
                soonest = soonest.min(self.doubts_at(running));
            }
            if !self.queues.is_empty() {
                soonest = soonest
                    .min(replica.turns_free(now, self.settings.lead).unwrap_or(Moment::NEVER));
            }
        }
        soonest
    }

    /// When to look at the head of a line again: once it would be late even alone, or at its end.
    fn last_call(&self, key: usize, head: &Waiting, now: Moment) -> Moment {
        if !self.rule.predicts() {
            return head.by();
        }
        let takes = self.in_rotation().map(|replica| replica.latency(key).low(head.rows)).min();
        let hopeless_at = head.by() - takes.unwrap_or_default() - self.settings.margin;
        // A microsecond on, as one that can just be saved is.
        let after = hopeless_at + std::time::Duration::from_micros(1);
        if after > now { after.min(head.by()) } else { head.by() }
    }
}

/// Whether one done at `finish` is in time for the objective, and only its caller's own limit is not
/// kept.
pub(super) fn is_too_short(waiting: &Waiting, finish: Moment) -> bool {
    waiting.until.deadline < waiting.until.due && finish <= waiting.until.due
}

/// Why one gets no answer whose time is up, and that would be done at `finish`.
fn why_given_up(waiting: &Waiting, finish: Moment, now: Moment) -> Refusal {
    if is_too_short(waiting, finish) {
        Refusal::TooShort { predicted: finish.since(waiting.arrived) }
    } else {
        Refusal::TooLate { waited: now.since(waiting.arrived) }
    }
}

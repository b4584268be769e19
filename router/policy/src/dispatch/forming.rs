//! Turning waiting requests into batches, and away those that cannot be saved.

use super::{Batch, ClosedBy, Dispatch, Effect, GRACE, Refusal, revoke};
use crate::{
    inflight::{Departure, Flight},
    moment::Moment,
    queue::Waiting,
    rule::{Bound, Decision, View},
};

/// Which lane is served first: one with more than the batch class, then by deadline, then by key.
type Urgency = (bool, Moment, usize);

/// Which replica is given a batch first: by the end of a batch of one row, then by its place.
type Nearness = (Moment, usize);

#[derive(Clone, Copy)]
struct Cut {
    taker: usize,
    key: usize,
    skip: usize,
    take: usize,
    drop_skipped: bool,
    bound: Bound,
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
        self.lanes.tidy();
        self.wakes_at = self.next_event(now).min(ask_again);
    }

    /// Answers those whose deadline has come, on replicas too.
    fn expire(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.lanes.shed(
            |head| head.deadline <= now,
            |late| {
                revoke(&mut self.shares, &late);
                effects.push(too_late(&late, now));
            },
        );
        for replica in &mut self.replicas {
            for flight in replica.flights_mut() {
                if flight.soonest_deadline() + GRACE <= now {
                    flight.expire(now - GRACE, |late| effects.push(too_late(late, now)));
                }
            }
            effects.extend(replica.call_off());
        }
    }

    /// Refuses those at the head that no replica can finish in time even alone.
    fn shed_hopeless(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.lanes.is_empty() {
            return;
        }
        // The lines are taken out to be changed while the replicas are asked.
        let mut lanes = std::mem::take(&mut self.lanes);
        let mut shares = std::mem::take(&mut self.shares);
        let least = |head: &Waiting| self.soonest_finish(head.rows, now).unwrap_or(Moment::NEVER);
        let count = lanes.len();
        lanes.shed(
            |head| least(head) + self.settings.margin > head.deadline,
            |lost| {
                let why = Refusal::Overloaded {
                    waiting: count,
                    predicted: least(&lost).since(lost.arrived),
                    retry_after: self.soonest(1, now).map_or(now, |(_, start)| start).since(now),
                };
                effects.push(Effect::Refuse { id: revoke(&mut shares, &lost), why });
            },
        );
        self.lanes = lanes;
        self.shares = shares;
    }

    /// The next batch, or when to ask again if none is to be sent now.
    ///
    /// Lanes are tried by urgency and replicas by nearness, until a rule would send.
    fn choose(&self, now: Moment) -> Result<Cut, Moment> {
        let mut ask_again = Moment::NEVER;
        let mut lane = None;
        while let Some(urgency) = self.next_lane(lane) {
            lane = Some(urgency);
            let mut taker = None;
            while let Some(nearness) = self.next_taker(taker, now) {
                taker = Some(nearness);
                let (key, index) = (urgency.2, nearness.1);
                match self.rule.decide(&self.view(key, index, now)) {
                    Decision::Wait { until } => ask_again = ask_again.min(until),
                    Decision::Send { skip, take, drop_skipped, bound } => {
                        return Ok(Cut { taker: index, key, skip, take, drop_skipped, bound });
                    }
                }
            }
            if taker.is_none() {
                break;
            }
        }
        Err(ask_again)
    }

    fn view(&self, key: usize, taker: usize, now: Moment) -> View<'_> {
        let replica = &self.replicas[taker];
        let lane = self.lanes.get(key).expect("a lane that was just found");
        View {
            now,
            start: replica.free_at(now),
            line: lane.leading(),
            limit: self.limit(replica),
            latency: &replica.latency,
            objective: self.settings.objective,
            margin: self.settings.margin,
            replicas: self.in_rotation().count() as u32,
            scarce: self.is_scarce(now),
            caution: replica.plan.caution,
        }
    }

    fn form(&mut self, cut: Cut, now: Moment, effects: &mut Vec<Effect>) {
        let start = self.replicas[cut.taker].free_at(now);
        let mut taken = self.take(cut, start, now, effects);
        let replica = &self.replicas[cut.taker];
        let cap = self.cap(replica);
        self.fill_up(&mut taken, cut, start);
        let rows: u32 = taken.iter().map(|waiting| waiting.rows).sum();
        // Only a request that is larger by itself goes beyond the maximum: it came before that fell.
        assert!(rows <= self.settings.max_batch || taken.len() == 1, "a batch of {rows} rows");
        let replica = &self.replicas[cut.taker];
        let departure = Departure {
            batch: self.next_batch,
            key: cut.key,
            now,
            start,
            full: rows >= cap,
            expects: replica.latency.mean(rows),
            allows: replica.latency.stretched(rows, replica.latency.rare()),
        };
        self.next_batch += 1;
        let flight = Flight::new(departure, &taken);
        effects.push(Effect::Send(self.describe(cut, &flight)));
        self.replicas[cut.taker].send(flight, now);
    }

    /// Takes the chosen requests out of their lane.
    ///
    /// Of those passed over, the ones this replica is too slow for stay: another is not.
    fn take(
        &mut self,
        cut: Cut,
        start: Moment,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> Vec<Waiting> {
        let count = self.lanes.len();
        let free_at = self.soonest(1, now).map_or(now, |(_, start)| start);
        let latency = &self.replicas[cut.taker].latency;
        let line = self.lanes.get_mut(cut.key).expect("a lane that was just found").leading_mut();
        let skipped: Vec<Waiting> = line.take(cut.skip).collect();
        let taken: Vec<Waiting> = line.take(cut.take).collect();
        assert!(!taken.is_empty(), "a rule sent an empty batch");
        for waiting in skipped {
            let done_at = start + latency.low(waiting.rows) + self.settings.margin;
            if !cut.drop_skipped || done_at > waiting.deadline {
                line.insert(waiting);
                continue;
            }
            let retry_after = free_at.since(now);
            let predicted = done_at.since(waiting.arrived);
            let why = Refusal::Overloaded { waiting: count, predicted, retry_after };
            effects.push(Effect::Refuse { id: revoke(&mut self.shares, &waiting), why });
        }
        taken
    }

    /// Adds requests of the batch class in the room that is left.
    fn fill_up(&mut self, taken: &mut Vec<Waiting>, cut: Cut, start: Moment) {
        let replica = &self.replicas[cut.taker];
        let cap = self.cap(replica);
        let mut rows: u32 = taken.iter().map(|waiting| waiting.rows).sum();
        let mut due = taken.iter().map(|waiting| waiting.deadline).min().unwrap_or(Moment::NEVER);
        let mut company = taken.iter().map(|waiting| waiting.company).min().unwrap_or(u32::MAX);
        let Some(lane) = self.lanes.get_mut(cut.key) else { return };
        while let Some(head) = lane.low.head() {
            company = company.min(head.company);
            due = due.min(head.deadline);
            let larger = rows.saturating_add(head.rows);
            let done_at = start + replica.latency.high(larger) + self.settings.margin;
            if larger > cap || taken.len() as u64 >= u64::from(company) || done_at > due {
                break;
            }
            rows = larger;
            taken.extend(lane.low.remove_at(0));
        }
    }

    fn describe(&self, cut: Cut, flight: &Flight) -> Batch {
        let replica = &self.replicas[cut.taker];
        let closed_by = match cut.bound {
            Bound::Limit => ClosedBy::Full,
            Bound::Deadline | Bound::Waiting if flight.full => ClosedBy::Full,
            Bound::Deadline => ClosedBy::Deadline,
            Bound::Waiting
                if self.lanes.iter().any(|(key, lane)| key != cut.key && !lane.is_empty()) =>
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

    /// The first lane after `last` in order of urgency.
    fn next_lane(&self, last: Option<Urgency>) -> Option<Urgency> {
        self.lanes
            .iter()
            .filter_map(|(key, lane)| {
                Some((lane.main.is_empty(), lane.leading().head()?.deadline, key))
            })
            .filter(|urgency| last.is_none_or(|last| *urgency > last))
            .min()
    }

    /// The first replica after `last`, in order of nearness, that can take a batch.
    fn next_taker(&self, last: Option<Nearness>, now: Moment) -> Option<Nearness> {
        let lead = self.settings.lead;
        let replicas = self.replicas.iter().enumerate();
        replicas
            .filter(|(_, replica)| replica.takes_at(now, lead))
            .map(|(index, replica)| (replica.free_at(now) + replica.latency.mean(1), index))
            .filter(|nearness| last.is_none_or(|last| *nearness > last))
            .min()
    }

    /// When something will happen by itself: an expiry, a lost cause, a replica about to be free.
    fn next_event(&self, now: Moment) -> Moment {
        let mut soonest = Moment::NEVER;
        let heads = self.lanes.iter().flat_map(|(_, lane)| [lane.main.head(), lane.low.head()]);
        for head in heads.flatten() {
            soonest = soonest.min(self.last_call(head, now));
        }
        for replica in &self.replicas {
            for flight in replica.flights() {
                soonest = soonest.min(flight.soonest_deadline() + GRACE);
            }
            if let Some(running) = &replica.running {
                soonest = soonest.min(self.doubts_at(running));
            }
            if !self.lanes.is_empty() {
                soonest = soonest
                    .min(replica.turns_free(now, self.settings.lead).unwrap_or(Moment::NEVER));
            }
        }
        soonest
    }

    /// When to look at the head of a line again: once it would be late even alone, or at its end.
    fn last_call(&self, head: &Waiting, now: Moment) -> Moment {
        if !self.rule.predicts() {
            return head.deadline;
        }
        let takes = self.in_rotation().map(|replica| replica.latency.low(head.rows)).min();
        let hopeless_at = head.deadline - takes.unwrap_or_default() - self.settings.margin;
        // A microsecond on, as one that can just be saved is.
        let after = hopeless_at + std::time::Duration::from_micros(1);
        if after > now { after.min(head.deadline) } else { head.deadline }
    }
}

fn too_late(waiting: &Waiting, now: Moment) -> Effect {
    Effect::Refuse { id: waiting.id, why: Refusal::TooLate { waited: now.since(waiting.arrived) } }
}

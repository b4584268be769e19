//! Turning waiting requests into batches, and away those that cannot be saved.

use super::{Batch, ClosedBy, Dispatch, Effect, GRACE, Refusal};
use crate::{
    inflight::{Flight, Member},
    moment::Moment,
    queue::{Line, Standing, Waiting},
    rule::{Bound, Decision, View},
};

impl Dispatch {
    /// Does all that can be done at `now`, and works out when to be called again.
    pub(super) fn pump(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.expire(now, effects);
        let asked_to_wait = loop {
            if self.rule.predicts() {
                self.shed_hopeless(now, effects);
            }
            match self.form(now, effects) {
                Formed::Batch => {}
                Formed::Nothing { ask_again } => break ask_again,
            }
        };
        self.wakes_at = self.next_event(now).min(asked_to_wait);
    }

    /// Answers those whose deadline has come, on replicas too.
    fn expire(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        for lane in &mut self.lanes {
            for line in [&mut lane.main, &mut lane.low] {
                while line.head().is_some_and(|head| head.deadline <= now) {
                    if let Some(late) = line.remove_at(0) {
                        self.waiting -= 1;
                        effects.push(too_late(&late, now));
                    }
                }
            }
        }
        for replica in &mut self.replicas {
            for flight in replica.flights_mut() {
                for member in flight.members.iter_mut().filter(|member| !member.gone) {
                    if member.waiting.deadline + GRACE <= now {
                        member.gone = true;
                        effects.push(too_late(&member.waiting, now));
                    }
                }
            }
        }
    }

    /// Refuses those at the head that no replica can finish in time even alone.
    fn shed_hopeless(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.waiting == 0 {
            return;
        }
        let Some((replica, start)) = self.first_free(now) else { return };
        let least = start + replica.latency.mean(1) + self.settings.margin;
        let retry_after = self.until_free(now);
        for lane in &mut self.lanes {
            for line in [&mut lane.main, &mut lane.low] {
                while line.head().is_some_and(|head| head.deadline < least) {
                    if let Some(lost) = line.remove_at(0) {
                        let why = Refusal::Overloaded {
                            waiting: self.waiting,
                            predicted: least.since(lost.arrived),
                            retry_after,
                        };
                        self.waiting -= 1;
                        effects.push(Effect::Refuse { id: lost.id, why });
                    }
                }
            }
        }
    }

    fn form(&mut self, now: Moment, effects: &mut Vec<Effect>) -> Formed {
        if self.waiting == 0 {
            return Formed::Nothing { ask_again: Moment::NEVER };
        }
        let Some(taker) = self.taker(now) else {
            return Formed::Nothing { ask_again: Moment::NEVER };
        };
        let Some(key) = self.most_urgent_lane() else {
            return Formed::Nothing { ask_again: Moment::NEVER };
        };
        let replica = &self.replicas[taker];
        let guard = self.rule.guard();
        let view = View {
            now,
            start: replica.free_at(now),
            line: self.lanes[key].leading(),
            limit: replica.limit(guard),
            latency: &replica.latency,
            objective: self.settings.objective,
            margin: self.settings.margin,
            replicas: self.replicas.iter().filter(|replica| !replica.draining).count() as u32,
            scarce: self.is_scarce(now, Standing::Normal),
        };
        match self.rule.decide(&view) {
            Decision::Wait { until } => Formed::Nothing { ask_again: until },
            Decision::Send { skip, take, drop_skipped, bound } => {
                let start = view.start;
                let cut = Cut { key, skip, take, drop_skipped };
                let taken = self.cut(cut, now, effects);
                let flight = self.launch(taker, key, taken, start, now);
                effects.push(Effect::Send(self.describe(taker, key, bound, &flight)));
                self.replicas[taker].send(flight, now);
                Formed::Batch
            }
        }
    }

    /// Takes the chosen requests out of their lane.
    fn cut(&mut self, cut: Cut, now: Moment, effects: &mut Vec<Effect>) -> Vec<Waiting> {
        let retry_after = self.until_free(now);
        let lane = &mut self.lanes[cut.key];
        let line: &mut Line = if lane.main.is_empty() { &mut lane.low } else { &mut lane.main };
        let mut skipped: Vec<Waiting> = line.take(cut.skip).collect();
        let taken: Vec<Waiting> = line.take(cut.take).collect();
        assert!(!taken.is_empty(), "a rule sent an empty batch");
        self.waiting -= taken.len();
        if cut.drop_skipped {
            self.waiting -= skipped.len();
            for lost in skipped {
                let why = Refusal::Overloaded {
                    waiting: self.waiting,
                    predicted: now.since(lost.arrived) + retry_after,
                    retry_after,
                };
                effects.push(Effect::Refuse { id: lost.id, why });
            }
        } else {
            skipped.drain(..).for_each(|waiting| line.insert(waiting));
        }
        taken
    }

    /// Makes the batch, with low-class requests in the room that is left.
    fn launch(
        &mut self,
        taker: usize,
        key: usize,
        mut taken: Vec<Waiting>,
        start: Moment,
        now: Moment,
    ) -> Flight {
        let replica = &self.replicas[taker];
        let mut rows: u32 = taken.iter().map(|waiting| waiting.rows).sum();
        let mut due_at = taken.iter().map(|waiting| waiting.deadline).min().unwrap_or(Moment::NEVER);
        let margin = self.settings.margin;
        let limit = self.rule.cap(&replica.latency, replica.limit(self.rule.guard()));
        let alone = taken.iter().any(|waiting| waiting.alone);
        let low = &mut self.lanes[key].low;
        while let Some(head) = low.head().filter(|head| !head.alone && !alone) {
            let larger = rows.saturating_add(head.rows);
            let due = due_at.min(head.deadline) - margin;
            if larger > limit || start + replica.latency.high(larger) > due {
                break;
            }
            rows = larger;
            due_at = due_at.min(head.deadline);
            taken.extend(low.remove_at(0));
            self.waiting -= 1;
        }
        assert!(rows >= 1 && rows <= self.settings.max_batch, "a batch of {rows} rows");
        for waiting in &taken {
            self.shares.served(waiting.tenant, waiting.rows, now);
        }
        let batch = self.next_batch;
        self.next_batch += 1;
        let members = taken.iter().map(|waiting| Member { waiting: *waiting, gone: false });
        Flight {
            batch,
            key: key as u32,
            sent_at: now,
            started_at: start,
            rows,
            full: rows >= limit,
            due_at,
            expects: replica.latency.mean(rows),
            allows: replica.latency.high(rows).mul_f64(1.25),
            members: members.collect(),
        }
    }

    fn describe(&self, taker: usize, key: usize, bound: Bound, flight: &Flight) -> Batch {
        let limit = self.replicas[taker].limit(self.rule.guard());
        let others = self.lanes.iter().enumerate().any(|(index, lane)| {
            index != key && !lane.is_empty()
        });
        let closed_by = match bound {
            _ if flight.rows >= limit => ClosedBy::Full,
            Bound::Limit => ClosedBy::Full,
            Bound::Deadline => ClosedBy::Deadline,
            Bound::Waiting if others => ClosedBy::Shape,
            Bound::Waiting => ClosedBy::IdleReplica,
        };
        Batch {
            id: flight.batch,
            replica: self.replicas[taker].id,
            requests: flight.members.iter().map(|member| member.waiting.id).collect(),
            rows: flight.rows,
            closed_by,
        }
    }

    /// The replica that can take a batch now and would finish one row soonest.
    fn taker(&self, now: Moment) -> Option<usize> {
        let lead = self.settings.lead;
        (0..self.replicas.len())
            .filter(|index| self.replicas[*index].takes_at(now, lead))
            .min_by_key(|index| {
                let replica = &self.replicas[*index];
                (replica.free_at(now) + replica.latency.mean(1), *index)
            })
    }

    fn most_urgent_lane(&self) -> Option<usize> {
        (0..self.lanes.len())
            .filter_map(|index| Some((self.lanes[index].leading().head()?.deadline, index)))
            .min()
            .map(|(_, index)| index)
    }

    /// When something will happen by itself: an expiry, a lost cause, a replica about to be free.
    fn next_event(&self, now: Moment) -> Moment {
        let mut soonest = Moment::NEVER;
        let predicts = self.rule.predicts();
        let needs = self.replicas.iter().map(|replica| replica.latency.mean(1)).min();
        let spare = needs.filter(|_| predicts).unwrap_or_default();
        for lane in &self.lanes {
            for head in [&lane.main, &lane.low].into_iter().filter_map(|line| line.head()) {
                let hopeless = head.deadline - spare - self.settings.margin;
                let at = if predicts && hopeless > now { hopeless } else { head.deadline };
                soonest = soonest.min(at);
            }
        }
        for replica in &self.replicas {
            for flight in replica.flights() {
                if let Some(deadline) = flight.next_deadline() {
                    soonest = soonest.min(deadline + GRACE);
                }
            }
            if self.waiting > 0 {
                soonest = soonest.min(self.turns_free(replica, now));
            }
        }
        soonest
    }

    fn turns_free(&self, replica: &crate::replica::Replica, now: Moment) -> Moment {
        let reopens = replica.breaker.reopens_at().filter(|at| *at > now);
        let ends = match (&replica.running, &replica.next) {
            (Some(flight), None) => Some(flight.expected_end() - self.settings.lead),
            (Some(_), Some(_)) | (None, _) => None,
        };
        let ends = ends.filter(|at| *at > now);
        reopens.into_iter().chain(ends).min().unwrap_or(Moment::NEVER)
    }
}

enum Formed {
    Batch,
    Nothing { ask_again: Moment },
}

struct Cut {
    key: usize,
    skip: usize,
    take: usize,
    drop_skipped: bool,
}

fn too_late(waiting: &Waiting, now: Moment) -> Effect {
    Effect::Refuse {
        id: waiting.id,
        why: Refusal::TooLate { waited: now.since(waiting.arrived) },
    }
}

//! What follows from a batch coming back, or not.

use super::{Dispatch, Effect, Ended, Learned, Refusal};
use crate::{inflight::Flight, moment::Moment, queue::Waiting, rule::Guard};

impl Dispatch {
    /// A batch has come back from `replica`. Its requests are the caller's to answer if it is done.
    pub fn finished(
        &mut self,
        replica: u32,
        batch: u64,
        ended: Ended,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> Option<Learned> {
        let index = self.replica(replica)?;
        let flight = self.replicas[index].take(batch, now)?;
        let learned = match ended {
            Ended::Done => Some(self.learn(index, &flight, now)),
            Ended::Cancelled => {
                self.replicas[index].breaker.neither();
                self.requeue(&flight, now, effects);
                None
            }
            Ended::RequestFault => {
                self.replicas[index].breaker.neither();
                self.isolate(&flight, now, effects);
                None
            }
            Ended::ReplicaFault => {
                self.replicas[index].breaker.miss(now);
                self.requeue(&flight, now, effects);
                None
            }
        };
        self.forget_drained(index);
        self.pump(now, effects);
        learned
    }

    /// `replica` is gone, with all it held. Those who can still be in time wait for another.
    pub fn lost(&mut self, replica: u32, now: Moment, effects: &mut Vec<Effect>) {
        let Some(index) = self.replica(replica) else { return };
        let mut gone = self.replicas.remove(index);
        for flight in gone.running.take().into_iter().chain(gone.next.take()) {
            self.requeue(&flight, now, effects);
        }
        if self.replicas.iter().all(|replica| replica.draining) {
            self.refuse_all(effects);
        }
        self.pump(now, effects);
    }

    fn learn(&mut self, index: usize, flight: &Flight, now: Moment) -> Learned {
        let guard = self.rule.guard();
        let due_at = match guard {
            Guard::Execution => flight.started_at + self.settings.objective,
            // Late and no slower than believed is the queue's doing: a smaller batch would not help.
            Guard::Off | Guard::Deadlines => flight.due_at.max(flight.started_at + flight.allows),
        };
        let replica = &mut self.replicas[index];
        replica.breaker.hit();
        let lesson = replica.learn(flight, now, due_at);
        Learned {
            rows: flight.rows,
            step: lesson.step,
            limit: replica.limit(guard),
            change: lesson.change,
            took: lesson.took,
            expected: lesson.expected,
        }
    }

    /// Puts back those of a failed batch that another replica could still answer in time.
    fn requeue(&mut self, flight: &Flight, now: Moment, effects: &mut Vec<Effect>) {
        let free = self.first_free(now).map(|(replica, start)| start + replica.latency.mean(1));
        for waiting in live(flight) {
            match free {
                Some(finish) if finish <= waiting.deadline => self.enqueue(flight.key, waiting),
                Some(_) => effects.push(Effect::Fail { id: waiting.id }),
                None => effects.push(Effect::Fail { id: waiting.id }),
            }
        }
    }

    /// Gives each request of a batch that one of them spoilt a batch of its own.
    fn isolate(&mut self, flight: &Flight, now: Moment, effects: &mut Vec<Effect>) {
        if flight.members.len() == 1 {
            effects.extend(live(flight).map(|waiting| Effect::Fail { id: waiting.id }));
            return;
        }
        let mut apart = flight.clone();
        for member in &mut apart.members {
            member.waiting.alone = true;
        }
        self.requeue(&apart, now, effects);
    }

    fn refuse_all(&mut self, effects: &mut Vec<Effect>) {
        for lane in &mut self.lanes {
            for line in [&mut lane.main, &mut lane.low] {
                let count = line.len();
                self.waiting -= count;
                effects.extend(
                    line.take(count)
                        .map(|lost| Effect::Refuse { id: lost.id, why: Refusal::NoReplica }),
                );
            }
        }
    }
}

fn live(flight: &Flight) -> impl Iterator<Item = Waiting> + '_ {
    flight.members.iter().filter(|member| !member.gone).map(|member| member.waiting)
}

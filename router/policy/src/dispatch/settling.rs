//! What follows from a batch coming back, or not.

use super::{Dispatch, Effect, Ended, Learned, Refusal, revoke};
use crate::{inflight::Flight, moment::Moment, queue::Waiting, rule::Guard};

/// Failures after which a request is answered with the last. A replica that dies under it counts
/// as two, so that one request cannot take down more than two replicas.
pub(super) const STRIKES_OUT: u32 = 4;
pub(super) const DEATH: u32 = 2;
const FAULT: u32 = 1;

impl Dispatch {
    /// A batch has come back from `replica`. Its requests are the caller's to answer if it is done.
    #[expect(clippy::too_many_arguments, reason = "one event, and where its effects go")]
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
            Ended::Done => {
                self.recall(&flight, effects);
                Some(self.learn(index, &flight, now))
            }
            Ended::Cancelled => {
                self.replicas[index].breaker.neither();
                self.requeue(&flight, 0, now, effects);
                None
            }
            Ended::RequestFault => {
                self.replicas[index].breaker.neither();
                self.divide(&flight, now, effects);
                None
            }
            Ended::ReplicaFault => {
                self.replicas[index].breaker.miss(now);
                self.requeue(&flight, FAULT, now, effects);
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
        if let Some(flight) = gone.running.take() {
            self.requeue(&flight, DEATH, now, effects);
        }
        if let Some(flight) = gone.next.take() {
            self.requeue(&flight, 0, now, effects);
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
        self.appraise(index, now);
        Learned {
            rows: flight.rows,
            step: lesson.step,
            limit: self.replicas[index].limit(guard),
            change: lesson.change,
            took: lesson.took,
            expected: flight.expects,
        }
    }

    /// Puts back those of a failed batch that a replica could still answer in time.
    fn requeue(&mut self, flight: &Flight, strikes: u32, now: Moment, effects: &mut Vec<Effect>) {
        for waiting in flight.live() {
            let again = Waiting { strikes: waiting.strikes + strikes, ..*waiting };
            let finish = self.soonest_finish(flight.key, again.rows, now);
            let hopeful = finish.and_then(|finish| again.done_at(finish));
            match hopeful.filter(|one| one.by() > now && one.strikes < STRIKES_OUT) {
                Some(again) => self.wait_again(flight.key, again, waiting),
                None => effects.push(Effect::Fail { id: waiting.id }),
            }
        }
    }

    /// Puts `again` back in line, which was sent as `before`.
    pub(super) fn wait_again(&mut self, key: usize, again: Waiting, before: &Waiting) {
        if again.priority != before.priority {
            revoke(&mut self.shares, before);
        }
        self.queues.insert(key, again);
    }

    /// Has the requests of a batch that one of them spoilt tried again in smaller company.
    fn divide(&mut self, flight: &Flight, now: Moment, effects: &mut Vec<Effect>) {
        if flight.len() == 1 {
            effects.extend(flight.live().map(|waiting| Effect::Fail { id: waiting.id }));
            return;
        }
        let mut divided = flight.clone();
        divided.allow_company(u32::try_from(flight.len() / 2).unwrap_or(u32::MAX));
        self.requeue(&divided, 0, now, effects);
    }

    /// Turns away all who wait, because nobody is there to serve them.
    pub(super) fn refuse_all(&mut self, effects: &mut Vec<Effect>) {
        let why = Refusal::NoReplica;
        self.queues.shed(|_, _| true, |_, lost| effects.push(Effect::Refuse { id: lost.id, why }));
    }
}

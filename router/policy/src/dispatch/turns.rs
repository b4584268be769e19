//! Taking turns with other models in one process, which runs one batch at a time.
//!
//! A batch that waits in the process behind another model's is old and small when its turn comes:
//! who arrived meanwhile is not in it. So it is formed when the process is free, and not before.
//! Whoever knows all the models of a process tells each when another's batch is in it, and when it
//! is free lets them go on one after the other, the one with the least [leeway](Dispatch::leeway)
//! first, until one has sent a batch.

use std::time::Duration;

use super::{Dispatch, Effect, replica::Turn};
use crate::moment::Moment;

/// How long a round of the longest turns is, in terms of the tightest objective.
///
/// Turns are seldom all of the longest, so that this may be more than one. In simulation of the
/// published scenarios, 0.6 left large batches too little, and without a bound one model's backlog
/// held up the others for a second.
const ROUND: f64 = 1.2;
/// How much longer those can wait who can only be late: longer than the batch class.
const LATE_LEEWAY: f64 = 2.0;

/// The longest a batch may take in a process that models with these objectives share; none for one
/// that has it to itself.
pub fn longest_turn(objectives: &[Duration]) -> Option<Duration> {
    let tightest = objectives.iter().min()?;
    (objectives.len() > 1).then(|| tightest.mul_f64(ROUND / objectives.len() as f64))
}

impl Dispatch {
    /// Has replica `id` take turns in its process, with batches that take no longer than `longest`;
    /// none if it has the process to itself.
    ///
    /// Where turns are taken no batch is sent ahead, and after each the replica waits to be told
    /// [to go on](Self::step_up).
    pub fn take_turns(&mut self, id: u32, longest: Option<Duration>) {
        let Some(index) = self.replica(id) else { return };
        let replica = &mut self.replicas[index];
        replica.longest = longest;
        replica.turn = match (longest, replica.turn) {
            (None, _) => Turn::Always,
            (Some(_), Turn::Always) => Turn::Free,
            (Some(_), turn @ (Turn::Free | Turn::Elsewhere { .. })) => turn,
        };
        self.wake_at_once();
    }

    /// Another model's batch is in the process of `id`, until about `until`.
    pub fn step_aside(&mut self, id: u32, until: Moment) {
        let Some(index) = self.replica(id) else { return };
        match &mut self.replicas[index].turn {
            Turn::Always => {}
            turn @ (Turn::Free | Turn::Elsewhere { .. }) => *turn = Turn::Elsewhere { until },
        }
        let comes_at = self.replicas[index].turn_comes_at().unwrap_or(Moment::NEVER);
        if !self.queues.is_empty() {
            self.wakes_at = self.wakes_at.min(comes_at);
        }
    }

    pub fn step_up(&mut self, id: u32, now: Moment, effects: &mut Vec<Effect>) {
        let Some(index) = self.replica(id) else { return };
        match &mut self.replicas[index].turn {
            Turn::Always => {}
            turn @ (Turn::Free | Turn::Elsewhere { .. }) => *turn = Turn::Free,
        }
        self.pump(now, effects);
    }

    /// How much longer the next batch of `id` could wait, as a part of the objective; without end if
    /// nobody waits for it.
    ///
    /// A part, so that all models of a process come equally close to their deadlines: by time alone
    /// one with a long objective would wait until its backlog is more than turns can clear. The batch
    /// class goes when nobody else wants to, and who can only be late after it.
    pub fn leeway(&self, id: u32, now: Moment) -> f64 {
        let Some(index) = self.replica(id) else { return f64::INFINITY };
        let replica = &self.replicas[index];
        let objective = self.settings.objective.as_secs_f64();
        let queues = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let each = queues.map(|(key, queue)| match queue.interactive_due() {
            None if queue.has_timely() => 1.0,
            None => LATE_LEEWAY,
            Some(due) => {
                let waiting = u32::try_from(queue.interactive_rows()).unwrap_or(u32::MAX);
                let takes = replica.latency(key).mean(waiting.min(self.cap(replica, key)).max(1));
                let start = due - self.settings.margin - takes;
                start.since(now).as_secs_f64() / objective
            }
        });
        each.fold(f64::INFINITY, f64::min)
    }
}

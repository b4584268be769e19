//! The machine, event by event. Numbers in names are those of the users' requests they answer.

mod ahead;
mod failures;
mod guarding;
mod late;
mod shapes;
mod stalling;
mod turns;

use super::*;
use crate::rule::{Deadline, EarlyDrop, Slo, Timeout};

const OBJECTIVE: Duration = Duration::from_millis(50);

/// A machine, its effects so far, and what became of each request.
struct Rig {
    machine: Dispatch,
    now: Moment,
    sent: Vec<Batch>,
    refused: Vec<(u64, Refusal)>,
    failed: Vec<u64>,
    called_off: Vec<u64>,
    retried: Vec<u64>,
    given_up: Vec<u32>,
    next: u64,
}

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

fn at(value_ms: u64) -> Moment {
    Moment::default() + ms(value_ms)
}

fn settings(max_batch: u32) -> Settings {
    let none = Duration::ZERO;
    Settings { objective: OBJECTIVE, max_batch, way: none, lead: none, margin: none }
}

/// 10 ms and 1 ms a row.
fn slow(max_batch: u32) -> Vec<(u32, Duration)> {
    [1, max_batch].map(|rows| (rows, ms(10 + u64::from(rows)))).to_vec()
}

impl Rig {
    fn new(settings: Settings, rule: impl Rule + 'static) -> Self {
        Self {
            machine: Dispatch::new(settings, Box::new(rule)),
            now: Moment::default(),
            sent: Vec::new(),
            refused: Vec::new(),
            failed: Vec::new(),
            called_off: Vec::new(),
            retried: Vec::new(),
            given_up: Vec::new(),
            next: 0,
        }
    }

    /// One replica of 10 ms and 1 ms a row under our rule.
    fn slow(max_batch: u32) -> Self {
        let mut rig = Self::new(settings(max_batch), Slo);
        rig.add(0, &slow(max_batch));
        rig
    }

    fn add(&mut self, replica: u32, measured: &[(u32, Duration)]) {
        let effects = self.machine.add_replica(replica, measured, self.now);
        self.note(effects);
    }

    fn note(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(batch) => self.sent.push(batch),
                Effect::Refuse { id, why } => self.refused.push((id, why)),
                Effect::Fail { id } => self.failed.push(id),
                Effect::Cancel { batch, .. } => self.called_off.push(batch),
                Effect::Retry { requests, .. } => self.retried.extend(requests),
                Effect::GiveUp { replica } => self.given_up.push(replica),
            }
        }
    }

    /// Lets time pass, ticking whenever the machine asks for it.
    fn wait_until(&mut self, moment: Moment) {
        while self.machine.wakes_at() <= moment {
            self.now = self.now.max(self.machine.wakes_at());
            let mut effects = Vec::new();
            self.machine.tick(self.now, &mut effects);
            self.note(effects);
            assert!(self.machine.wakes_at() > self.now, "woken twice at {:?}", self.now);
        }
        self.now = self.now.max(moment);
    }

    fn arrive(&mut self, change: impl FnOnce(&mut Arrival)) -> Result<u64, Refusal> {
        let mut arrival = Arrival {
            id: self.next,
            key: 0,
            until: Until::both(self.now + OBJECTIVE),
            rows: 1,
            tenant: 0,
            class: Class::Interactive,
        };
        change(&mut arrival);
        self.next += 1;
        let mut effects = Vec::new();
        let admitted = self.machine.arrive(arrival, self.now, &mut effects);
        self.note(effects);
        admitted.map(|()| arrival.id)
    }

    fn one(&mut self) -> u64 {
        self.arrive(|_| {}).expect("room for one more")
    }

    fn finish(&mut self, batch: &Batch, ended: Ended) -> Option<Learned> {
        let mut effects = Vec::new();
        let (replica, id) = (batch.replica, batch.id);
        let learned = self.machine.finished(replica, id, ended, self.now, &mut effects);
        self.note(effects);
        learned
    }

    /// Ends the last batch sent, `took` after it began.
    fn end_last(&mut self, took: Duration, ended: Ended) -> Batch {
        let batch = self.sent.last().expect("a batch was sent").clone();
        self.wait_until(self.now + took);
        self.finish(&batch, ended);
        batch
    }

    fn cancel(&mut self, id: u64, due: Moment) {
        let mut effects = Vec::new();
        self.machine.cancel(id, 0, Until::both(due), &mut effects);
        self.note(effects);
    }

    fn lose(&mut self, replica: u32) {
        let mut effects = Vec::new();
        self.machine.lost(replica, self.now, &mut effects);
        self.note(effects);
    }

    /// Teaches the replica that batches up to `rows` are fine, so that the limit is out of the way.
    fn grow_to(&mut self, rows: u32) {
        while self.machine.limits().any(|limit| limit.rows < rows) {
            let far = self.now + ms(60_000);
            while self.machine.waiting() < rows as usize {
                self.arrive(|arrival| arrival.until = Until::both(far)).expect("time enough");
            }
            while self.machine.in_flight() > 0 {
                let took = ms(10 + u64::from(self.sent.last().map_or(1, |batch| batch.rows)));
                self.end_last(took, Ended::Done);
            }
        }
        self.wait_until(self.now + ms(5_000));
        self.sent.clear();
    }
}

#[test]
fn requests_that_come_together_share_a_batch() {
    let mut rig = Rig::new(settings(32), EarlyDrop);
    rig.add(0, &slow(32));
    let mut effects = Vec::new();
    for id in 1..=3 {
        let (until, class) = (Until::both(at(50)), Class::Interactive);
        let arrival = Arrival { id, key: 0, until, rows: 1, tenant: 0, class };
        rig.machine.enter(arrival, rig.now, &mut effects).unwrap();
        assert!(effects.is_empty(), "request {id} was not waited for: {effects:?}");
    }
    rig.machine.tick(rig.now, &mut effects);
    rig.note(effects);
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(rig.sent[0].requests, [1, 2, 3]);
}

#[test]
fn timeout_rule_counts_the_wait_from_arrival() {
    let mut rig = Rig::new(settings(8), Timeout { batch: 8, delay: ms(15) });
    rig.add(0, &slow(8));
    rig.wait_until(at(1_000));
    rig.one();
    rig.wait_until(at(1_014));
    assert!(rig.sent.is_empty());
    rig.wait_until(at(1_015));
    assert_eq!(rig.sent.len(), 1, "after long idle");

    rig.wait_until(at(1_020));
    rig.one();
    rig.wait_until(at(1_026));
    let first = rig.sent[0].clone();
    rig.finish(&first, Ended::Done);
    rig.wait_until(at(1_034));
    assert_eq!(rig.sent.len(), 1, "the second still has company to wait for");
    rig.wait_until(at(1_035));
    assert_eq!(rig.sent.len(), 2, "the same wait for one that came during a batch");
}

#[test]
fn batches_keep_their_bound_at_the_edge_values() {
    for max_batch in [1, 2, 32] {
        let mut rig = Rig::slow(max_batch);
        for _ in 0..20 {
            for rows in [1, max_batch, 1, max_batch.div_ceil(2)] {
                let _ = rig.arrive(|arrival| arrival.rows = rows);
            }
            if rig.machine.in_flight() > 0 {
                rig.end_last(ms(11), Ended::Done);
            }
        }
        assert!(rig.sent.iter().all(|batch| (1..=max_batch).contains(&batch.rows)), "{max_batch}");
        assert!(rig.sent.iter().any(|batch| batch.rows == max_batch), "{max_batch}");
    }
}

#[test]
fn request_over_the_current_limit_is_served_alone() {
    let mut rig = Rig::slow(32);
    let smallest = BatchLimit { replica: 0, rows: 1, set_by: LimitedBy::Aimd, slowdown: 1.0 };
    assert_eq!(rig.machine.limits().collect::<Vec<_>>(), [smallest]);
    rig.arrive(|arrival| arrival.rows = 20).unwrap();
    assert_eq!(rig.sent[0].rows, 20);
    assert_eq!(rig.sent[0].closed_by, ClosedBy::Full);
}

#[test]
fn request_over_a_lowered_maximum_is_served_alone() {
    let mut rig = Rig::slow(32);
    rig.grow_to(32);
    rig.one();
    rig.arrive(|arrival| arrival.rows = 12).unwrap();
    rig.one();
    rig.machine.reconfigure(settings(8), Box::new(Slo));
    rig.end_last(ms(11), Ended::Done);
    assert_eq!(rig.sent[1].rows, 12);
}

#[test]
fn request_is_refused_at_its_deadline_on_a_stuck_replica() {
    for rule in [0, 1, 2] {
        let mut rig = match rule {
            0 => Rig::new(settings(4), Slo),
            1 => Rig::new(settings(4), Deadline),
            _ => Rig::new(settings(4), EarlyDrop),
        };
        rig.add(0, &slow(4));
        let stuck = rig.arrive(|arrival| arrival.until = Until::both(at(10_000))).unwrap();
        let waits = rig.arrive(|arrival| arrival.until = Until::both(at(10_000))).unwrap();
        rig.wait_until(at(90_000));
        assert_eq!(rig.sent.len(), 1, "rule {rule}");
        let told: Vec<u64> = rig.refused.iter().map(|(id, _)| *id).collect();
        assert_eq!(told, [waits, stuck], "rule {rule}");
        for (_, why) in &rig.refused {
            // Ours may say so sooner, once the replica is so late that there is no hope.
            let waited = match why {
                Refusal::TooLate { waited } => *waited,
                Refusal::Overloaded { .. } if rule == 0 => continue,
                Refusal::Overloaded { .. }
                | Refusal::TooShort { .. }
                | Refusal::NoReplica
                | Refusal::Full { .. } => {
                    panic!("rule {rule}: {why:?}")
                }
            };
            let late = waited.saturating_sub(ms(10_000));
            assert!(late <= GRACE, "rule {rule}: refused after {waited:?}");
        }
    }
}

#[test]
fn requests_abandoned_while_waiting_are_not_run() {
    let mut rig = Rig::new(settings(32), Timeout { batch: 32, delay: ms(5) });
    rig.add(0, &slow(32));
    let ids: Vec<u64> = (0..1_000).map(|_| rig.one()).collect();
    let on_replica = rig.sent[0].requests.clone();
    for id in ids.iter().filter(|id| *id % 10 != 0) {
        rig.cancel(*id, at(0) + OBJECTIVE);
    }
    while rig.machine.in_flight() > 0 {
        rig.end_last(ms(1), Ended::Done);
    }
    let run: Vec<u64> = rig.sent.iter().flat_map(|batch| batch.requests.clone()).collect();
    let wanted = ids.iter().filter(|id| *id % 10 == 0 || on_replica.contains(id));
    assert_eq!(run.len(), wanted.count());
    assert!(rig.refused.is_empty() && rig.failed.is_empty());
}

#[test]
fn abandoned_batch_sent_ahead_is_cancelled_once() {
    let mut rig = Rig::new(Settings { lead: ms(5), ..settings(4) }, Slo);
    rig.add(0, &slow(4));
    let running = rig.one();
    let ahead = rig.one();
    rig.wait_until(at(7));
    assert_eq!(rig.sent.len(), 2, "the second was sent ahead");
    rig.cancel(ahead, at(50));
    assert_eq!(rig.called_off, [rig.sent[1].id]);
    rig.cancel(running, at(50));
    rig.cancel(ahead, at(50));
    assert_eq!(rig.called_off.len(), 1, "only once");
    let batch = rig.sent[1].clone();
    rig.finish(&batch, Ended::Cancelled);
    assert!(rig.failed.is_empty() && rig.refused.is_empty());
    assert_eq!(rig.machine.in_flight(), 0);
}

#[test]
fn machine_behaves_as_new_after_mass_cancellation() {
    let script = |rig: &mut Rig| {
        let from = rig.now;
        rig.sent.clear();
        for step in 0..400 {
            rig.wait_until(from + ms(3 * step));
            let _ = rig.arrive(|arrival| arrival.key = (step % 3) as u32);
            if step % 4 == 3 && rig.machine.in_flight() > 0 {
                rig.end_last(ms(1), Ended::Done);
            }
        }
        rig.wait_until(rig.now + ms(1_000));
        let shapes = rig.sent.iter().map(|batch| (batch.rows, batch.closed_by, batch.replica));
        shapes.collect::<Vec<_>>()
    };
    let fresh = || {
        let mut rig = Rig::slow(16);
        rig.machine.set_weights(&[1.0, 1.0]);
        rig.grow_to(16);
        rig
    };
    let mut waved = fresh();
    for wave in 0..20 {
        let waiting: Vec<(u64, Moment)> = (0..200)
            .filter_map(|_| Some((waved.arrive(|_| {}).ok()?, waved.now + OBJECTIVE)))
            .collect();
        for (id, deadline) in waiting {
            waved.cancel(id, deadline);
        }
        assert_eq!(waved.machine.waiting(), 0, "wave {wave}");
        assert_eq!(waved.machine.in_flight(), 0, "wave {wave}");
        waved.end_last(ms(11), Ended::Done);
    }
    waved.wait_until(waved.now + ms(60_000));
    assert!(waved.machine.is_idle());
    let mut plain = fresh();
    plain.wait_until(plain.now + ms(60_000));
    assert!(plain.machine.is_idle());
    assert_eq!(script(&mut waved), script(&mut plain));
}

#[test]
fn hopeless_request_is_refused_and_never_sent() {
    let mut rig = Rig::slow(8);
    rig.grow_to(8);
    let from = rig.now;
    rig.one();
    let tight = rig.arrive(|arrival| arrival.until = Until::both(from + ms(23))).unwrap();
    let wide = rig.one();
    // The batch that was to take 11 ms takes 13: one more of 11 would end at 24.
    rig.end_last(ms(13), Ended::Done);
    assert_eq!(rig.sent[1].requests, [wide]);
    assert_eq!(rig.refused.len(), 1);
    assert_eq!(rig.refused[0].0, tight);
}

#[test]
fn request_predicted_late_is_refused_at_once() {
    let mut rig = Rig::slow(8);
    rig.grow_to(8);
    let refusal = loop {
        if let Err(refusal) = rig.arrive(|_| {}) {
            break refusal;
        }
    };
    let Refusal::Overloaded { waiting, predicted, retry_after } = refusal else {
        panic!("{refusal:?}")
    };
    assert!((8..=24).contains(&waiting), "{waiting} waiting");
    assert!(predicted > OBJECTIVE, "{predicted:?}");
    assert!(retry_after > Duration::ZERO && retry_after < predicted, "{retry_after:?}");
    assert!(rig.refused.is_empty(), "nobody else pays");
}

#[test]
fn queue_bound_backs_up_the_prediction() {
    let mut rig = Rig::new(settings(1), Timeout { batch: 1, delay: ms(0) });
    rig.add(0, &slow(1));
    rig.one();
    for _ in 0..QUEUE_BOUND {
        rig.one();
    }
    assert_eq!(rig.arrive(|_| {}), Err(Refusal::Full { waiting: QUEUE_BOUND }));
}

#[test]
fn admission_depends_on_rows_not_on_their_division() {
    let verdict = |rows: u32, count: u32| {
        let mut rig = Rig::slow(8);
        rig.grow_to(8);
        rig.one();
        for _ in 0..count {
            rig.arrive(|arrival| arrival.rows = rows).unwrap();
        }
        match rig.arrive(|_| {}) {
            Ok(_) => None,
            Err(Refusal::Overloaded { predicted, retry_after, .. }) => {
                Some((predicted, retry_after))
            }
            Err(other) => panic!("{other:?}"),
        }
    };
    for batches in 0..3 {
        let whole = verdict(8, batches);
        assert_eq!(whole, verdict(4, 2 * batches), "{batches} batches ahead");
        assert_eq!(whole, verdict(1, 8 * batches), "{batches} batches ahead");
    }
    assert!(verdict(8, 2).is_some(), "two full batches ahead are too many");
}

#[test]
fn batch_class_waits_for_interactive_of_another_shape() {
    let mut rig = Rig::slow(8);
    rig.grow_to(8);
    rig.one();
    let low = rig
        .arrive(|arrival| {
            arrival.class = Class::Batch;
            arrival.key = 1;
            arrival.until = Until::both(arrival.until.due - ms(5));
        })
        .unwrap();
    let main = rig.one();
    rig.end_last(ms(11), Ended::Done);
    assert_eq!(rig.sent[1].requests, [main]);
    assert_eq!(rig.sent[1].closed_by, ClosedBy::Shape);
    rig.end_last(ms(11), Ended::Done);
    assert_eq!(rig.sent[2].requests, [low]);
}

#[test]
fn the_batch_class_fills_the_room_that_is_left() {
    let mut rig = Rig::slow(4);
    rig.grow_to(4);
    rig.one();
    let low: Vec<u64> =
        (0..6).map(|_| rig.arrive(|arrival| arrival.class = Class::Batch).expect("room")).collect();
    let main = rig.one();
    rig.end_last(ms(11), Ended::Done);
    assert_eq!(rig.sent[1].requests, [main, low[0], low[1], low[2]]);
}

#[test]
fn full_batch_does_not_wait_for_another_shape() {
    let mut rig = Rig::new(settings(4), Timeout { batch: 4, delay: ms(30) });
    rig.add(0, &slow(4));
    rig.one();
    for _ in 0..4 {
        rig.arrive(|arrival| arrival.key = 1).unwrap();
    }
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(rig.sent[0].rows, 4);
}

//! Answers that are wanted late, and limits of callers shorter than the objective.

use super::*;
use crate::aimd::Step;

const TIMEOUT: Duration = Duration::from_millis(500);

fn far() -> Moment {
    at(3_600_000)
}

impl Rig {
    /// A request whose answer is wanted for [`TIMEOUT`].
    fn patient(&mut self) -> Result<u64, Refusal> {
        self.arrive(|arrival| arrival.until.deadline = arrival.until.deadline + TIMEOUT - OBJECTIVE)
    }

    /// Lets each batch take what it is expected to until nobody waits.
    fn run_out(&mut self) {
        while self.machine.in_flight() + self.machine.waiting() > 0 {
            if self.machine.in_flight() == 0 {
                self.wait_until(self.machine.wakes_at());
                continue;
            }
            let rows = self.sent.last().map_or(1, |batch| batch.rows);
            self.end_last(ms(10 + u64::from(rows)), Ended::Done);
        }
    }

    /// Forgets the demand so far, so that it is within capacity.
    fn calm(&mut self) {
        self.machine.demand = ArrivalRate::new(RATE_WINDOW);
    }
}

#[test]
fn whoever_would_be_refused_is_served_late_after_the_others() {
    let (mut without, mut with) = (Rig::slow(1), Rig::slow(1));
    let refused = (0..12).filter(|_| without.arrive(|_| {}).is_err()).count();
    let ids: Vec<u64> = (0..12).map(|_| with.patient().expect("time enough")).collect();
    assert!((2..12).contains(&refused), "{refused}");
    without.run_out();
    with.run_out();
    assert_eq!(with.refused, []);
    let requests = |rig: &Rig| rig.sent.iter().flat_map(|batch| batch.requests.clone()).collect();
    let (before, after): (Vec<u64>, Vec<u64>) = (requests(&without), requests(&with));
    assert_eq!(before, after[..before.len()]);
    assert_eq!(after.len(), ids.len());
}

#[test]
fn late_batch_teaches_the_time_and_not_the_limit() {
    let mut rig = Rig::slow(8);
    rig.grow_to(8);
    let id = rig.arrive(|arrival| arrival.until = Until { due: at(0), deadline: far() });
    let id = id.unwrap();
    let batch = rig.sent.last().expect("an idle replica").clone();
    assert_eq!(batch.requests, [id]);
    rig.wait_until(rig.now + ms(400));
    let learned = rig.finish(&batch, Ended::Done).unwrap();
    assert_eq!((learned.step, learned.limit, learned.took), (Step::Held, 8, ms(400)));
}

#[test]
fn one_who_comes_just_after_a_late_batch_is_in_time() {
    let mut rig = Rig::slow(32);
    rig.grow_to(32);
    let far = far();
    let mut effects = Vec::new();
    for id in 1_000..1_040 {
        let until = Until { due: at(0), deadline: far };
        let arrival = Arrival { id, key: 0, until, rows: 1, tenant: 0, class: Class::Interactive };
        rig.machine.enter(arrival, rig.now, &mut effects).unwrap();
    }
    rig.calm();
    rig.machine.tick(rig.now, &mut effects);
    rig.note(effects);
    let late = rig.sent[0].clone();
    assert!((1..=15).contains(&late.rows), "{late:?}");
    rig.wait_until(rig.now + ms(1));
    let due = rig.now + OBJECTIVE;
    let id = rig.one();
    rig.wait_until(late.ends);
    rig.finish(&late, Ended::Done);
    let next = &rig.sent[1];
    assert!(next.requests.contains(&id) && next.ends <= due, "{next:?}, due {due:?}");
    assert!(next.rows <= 15, "{next:?}");
}

#[test]
fn late_ones_wait_while_capacity_is_scarce_and_no_longer() {
    let mut rig = Rig::slow(32);
    rig.grow_to(32);
    for _ in 0..300 {
        rig.machine.demand.add(Kind::Main, 1, rig.now);
    }
    rig.arrive(|arrival| arrival.until = Until { due: at(0), deadline: far() }).unwrap();
    let from = rig.now;
    assert!(rig.sent.is_empty(), "while there is more demand than can be served");
    while rig.sent.is_empty() {
        rig.wait_until(rig.machine.wakes_at());
    }
    let waited = rig.now.since(from);
    assert!(ms(20) <= waited && waited <= ms(400), "{waited:?}");
}

#[test]
fn limit_of_a_caller_that_only_it_misses_is_too_short() {
    let mut rig = Rig::slow(1);
    let refused = rig.arrive(|arrival| arrival.until.deadline = at(5));
    assert_eq!(refused, Err(Refusal::TooShort { predicted: ms(11) }));
    for _ in 0..4 {
        rig.one();
        rig.calm();
    }
    // Behind the others it would be done at 55 ms, which is past what is due at 52 and not at 56.
    rig.wait_until(at(2));
    let refused = rig.arrive(|arrival| arrival.until.deadline = at(51));
    assert!(matches!(refused, Err(Refusal::Overloaded { .. })), "{refused:?}");
    rig.calm();
    rig.wait_until(at(6));
    let refused = rig.arrive(|arrival| arrival.until.deadline = at(54));
    assert_eq!(refused, Err(Refusal::TooShort { predicted: ms(49) }));
}

#[test]
fn expiry_in_the_queue_asks_whether_the_objective_was_kept() {
    let rule = Timeout { batch: 8, delay: ms(15) };
    let mut rig = Rig::new(settings(8), rule);
    rig.add(0, &slow(8));
    let hurried = rig.arrive(|arrival| arrival.until.deadline = at(5)).unwrap();
    rig.wait_until(at(5));
    assert_eq!(rig.refused, [(hurried, Refusal::TooShort { predicted: ms(16) })]);
    rig.one();
    rig.wait_until(at(20));
    let behind = rig.arrive(|arrival| arrival.until.deadline = at(69)).unwrap();
    rig.wait_until(at(69));
    let ends = &rig.refused[1..];
    assert!(
        matches!(ends, [_, (id, Refusal::TooLate { waited })] if *id == behind && *waited == ms(49)),
        "{ends:?}"
    );
}

#[test]
fn late_ones_make_room_when_the_queue_is_full() {
    let mut rig = Rig::new(settings(1), EarlyDrop);
    rig.add(0, &slow(1));
    let ids: Vec<u64> = (0..=QUEUE_BOUND).map(|_| rig.patient().unwrap()).collect();
    assert_eq!(rig.arrive(|_| {}), Err(Refusal::Full { waiting: QUEUE_BOUND }));
    rig.wait_until(at(50));
    let newcomer = rig.arrive(|_| {});
    assert!(newcomer.is_ok(), "{newcomer:?}");
    let full = Refusal::Full { waiting: QUEUE_BOUND };
    assert_eq!(rig.refused, [(ids[QUEUE_BOUND], full)], "the last of them goes");
}

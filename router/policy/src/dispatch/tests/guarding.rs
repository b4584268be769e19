//! One tenant asks for far more than its share, the other for less, and capacity is scarce.

use super::*;

const MODEST: u32 = 0;
const FLOOD: u32 = 1;
const HALF: u32 = 15;

impl Rig {
    /// One replica, idle, after a flood.
    fn flooded() -> Self {
        let mut rig = Self::slow(32);
        rig.grow_to(32);
        let Dispatch { shares, demand, .. } = &mut rig.machine;
        shares.set_weights(&[1.0, 1.0]);
        shares.divide(600.0, rig.now);
        shares.granted(MODEST, 10);
        shares.granted(FLOOD, 400);
        shares.refused(FLOOD, 5_000);
        shares.divide(600.0, rig.now);
        demand.add(Kind::Main, 5_000, rig.now);
        demand.add(Kind::Open, 5_000, rig.now);
        rig
    }

    /// The same with a batch just sent.
    fn flooded_and_busy() -> Self {
        let mut rig = Self::flooded();
        let flood = |arrival: &mut Arrival| (arrival.tenant, arrival.rows) = (FLOOD, HALF);
        rig.arrive(flood).expect("an idle replica");
        rig
    }

    /// Those let in of `count` that `tenant` asks for.
    fn ask(&mut self, tenant: u32, count: u32) -> Vec<u64> {
        let one = |_| self.arrive(|arrival| arrival.tenant = tenant).ok();
        (0..count).filter_map(one).collect()
    }
}

#[test]
fn protected_requests_join_the_batch_after_a_late_one() {
    let mut rig = Rig::flooded_and_busy();
    let (first, due) = (rig.ask(MODEST, 1), rig.now + OBJECTIVE);
    let others = rig.ask(FLOOD, 9);
    rig.wait_until(rig.now + ms(20));
    let later = rig.ask(MODEST, 5);
    assert_eq!((first.len(), others.len(), later.len()), (1, 9, 5));
    rig.end_last(ms(7), Ended::Done);
    let next = &rig.sent[1];
    assert!(first.iter().chain(&later).all(|id| next.requests.contains(id)), "{next:?}");
    assert!(next.ends <= due, "{next:?}");
    let joined = others.iter().filter(|id| next.requests.contains(id)).count();
    assert!((2..9).contains(&joined), "{joined} others fill the room there is: {next:?}");
    assert_eq!(next.closed_by, ClosedBy::Deadline);
}

#[test]
fn protected_request_displaces_the_last_due_before_it() {
    let mut rig = Rig::flooded_and_busy();
    let others = rig.ask(FLOOD, 40);
    assert!((10..=HALF as usize).contains(&others.len()), "{others:?}: one batch and no queue");
    rig.ask(MODEST, 1);
    let refused: Vec<u64> = rig.refused.iter().map(|(id, _)| *id).collect();
    assert_eq!(refused, others[others.len() - 1..]);
    let urgent = rig.arrive(|arrival| {
        arrival.tenant = MODEST;
        arrival.until = Until::both(arrival.until.due - ms(1));
    });
    assert!(urgent.is_ok(), "{urgent:?}");
    assert_eq!(rig.refused.len(), 1, "nobody due after it makes way");
}

#[test]
fn slow_replica_serves_unprotected_requests() {
    let mut rig = Rig::flooded();
    rig.wait_until(rig.now + ms(1_000));
    rig.add(1, &[(1, ms(40)), (32, ms(90))]);
    rig.ask(FLOOD, 1);
    let urgent = rig.arrive(|arrival| {
        arrival.tenant = MODEST;
        arrival.until = Until::both(arrival.until.due - ms(20));
    });
    assert!(urgent.is_ok(), "{urgent:?}");
    assert_eq!(rig.machine.waiting(), 1, "it waits for the fast one");
    let other = rig.ask(FLOOD, 1);
    assert_eq!((rig.sent[1].replica, &rig.sent[1].requests), (1, &other));
    let fast = rig.sent[0].clone();
    rig.wait_until(fast.ends);
    rig.finish(&fast, Ended::Done);
    assert_eq!((rig.sent[2].replica, &rig.sent[2].requests[..]), (0, &[urgent.unwrap()][..]));
}

//! Replicas that do not answer, though they are there.

use super::*;

/// Two replicas of 5 ms, and a request on the first.
fn two() -> (Rig, u64) {
    let mut rig = Rig::new(settings(1), Slo);
    rig.add(0, &[(1, ms(5))]);
    rig.add(1, &[(1, ms(5))]);
    let id = rig.one();
    assert_eq!(rig.sent[0].replica, 0);
    (rig, id)
}

#[test]
fn request_on_a_hung_replica_is_hedged_in_time() {
    let (mut rig, id) = two();
    rig.wait_until(at(19));
    assert!(rig.retried.is_empty());
    rig.wait_until(at(22));
    assert_eq!(rig.retried, [id]);
    assert_eq!((rig.sent[1].replica, rig.sent[1].requests.clone()), (1, vec![id]));
    let again = rig.sent[1].clone();
    rig.finish(&again, Ended::Done);
    assert_eq!(rig.machine.in_flight(), 0);
    assert!(rig.failed.is_empty() && rig.refused.is_empty());
    for _ in 0..3 {
        let next = rig.one();
        let batch = rig.end_last(ms(5), Ended::Done);
        assert_eq!((batch.replica, batch.requests), (1, vec![next]), "the other hangs");
    }
}

#[test]
fn the_first_answer_counts_and_the_other_changes_nothing() {
    let (mut rig, _) = two();
    rig.wait_until(at(22));
    let (first, again) = (rig.sent[0].clone(), rig.sent[1].clone());
    assert!(rig.finish(&first, Ended::Done).is_some());
    assert_eq!(rig.machine.in_flight() + rig.machine.waiting(), 0, "nobody waits for the other");
    rig.wait_until(at(25));
    assert!(rig.finish(&again, Ended::Done).is_some());
    assert!(rig.refused.is_empty() && rig.failed.is_empty());
    assert!(rig.machine.is_idle());
}

#[test]
fn hung_sole_replica_is_dropped_after_the_deadline_refusal() {
    let mut rig = Rig::new(settings(1), Slo);
    rig.add(0, &[(1, ms(5))]);
    let id = rig.one();
    rig.wait_until(at(9_999));
    assert!(matches!(rig.refused[..], [(refused, Refusal::TooLate { waited })]
        if refused == id && waited <= OBJECTIVE + GRACE));
    assert!(rig.retried.is_empty() && rig.given_up.is_empty());
    rig.wait_until(at(60_000));
    assert_eq!(rig.given_up, [0], "once");
    rig.lose(0);
    assert!(rig.machine.is_idle());
}

#[test]
fn a_request_that_hangs_every_replica_hangs_no_more_than_two() {
    let mut rig = Rig::new(settings(1), Slo);
    for replica in 0..4 {
        rig.add(replica, &[(1, ms(5))]);
    }
    let id = rig.arrive(|arrival| arrival.until = Until::both(at(1_000))).unwrap();
    rig.wait_until(at(2_000));
    assert_eq!(rig.sent.len(), 2);
    assert!(matches!(rig.refused[..], [(refused, Refusal::TooLate { .. })] if refused == id));
}

#[test]
fn batch_ahead_on_a_hung_replica_moves_to_another() {
    let ahead = Settings { lead: ms(2), objective: ms(100), ..settings(1) };
    let mut rig = Rig::new(ahead, Slo);
    rig.add(0, &[(1, ms(5))]);
    let first = rig.arrive(|arrival| arrival.until = Until::both(at(100))).unwrap();
    let second = rig.arrive(|arrival| arrival.until = Until::both(at(100))).unwrap();
    rig.wait_until(at(4));
    assert_eq!(rig.sent.len(), 2, "the second is sent ahead");
    rig.add(1, &[(1, ms(5))]);
    rig.wait_until(at(25));
    assert_eq!(rig.retried, [first, second]);
    assert_eq!(rig.called_off, [rig.sent[1].id]);
    rig.end_last(ms(5), Ended::Done);
    rig.end_last(ms(5), Ended::Done);
    assert_eq!(rig.machine.in_flight() + rig.machine.waiting(), 0);
    assert!(rig.failed.is_empty() && rig.refused.is_empty());
}

#[test]
fn a_slow_batch_that_comes_back_teaches_as_ever() {
    let (mut rig, _) = two();
    rig.wait_until(at(30));
    let first = rig.sent[0].clone();
    let learned = rig.finish(&first, Ended::Done).unwrap();
    assert_eq!(learned.took, ms(30));
}

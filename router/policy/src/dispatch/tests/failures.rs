//! Replicas that fail, die, drain or are slow, and requests that spoil a batch.

use super::*;

#[test]
fn failed_batch_is_retried_up_to_four_faults() {
    let mut rig = Rig::slow(4);
    let id = rig.arrive(|arrival| arrival.until = Until::both(at(60_000))).unwrap();
    for fault in 1..=4 {
        assert!(rig.failed.is_empty(), "before fault {fault}");
        rig.end_last(ms(5), Ended::ReplicaFault);
        // After the third the replica is left alone for a while.
        rig.wait_until(rig.now + ms(600));
    }
    assert_eq!(rig.failed, [id]);
    assert_eq!(rig.sent.len(), 4);
}

#[test]
fn breaker_opens_after_three_faults_until_its_backoff_ends() {
    let mut rig = Rig::slow(4);
    for _ in 0..3 {
        rig.arrive(|arrival| arrival.until = Until::both(far())).unwrap();
        let batch = rig.sent.last().unwrap().clone();
        for id in &batch.requests {
            rig.cancel(*id, far());
        }
        rig.finish(&batch, Ended::ReplicaFault);
    }
    let tripped_at = rig.now;
    rig.sent.clear();
    rig.arrive(|arrival| arrival.until = Until::both(far())).unwrap();
    rig.wait_until(tripped_at + ms(499));
    assert!(rig.sent.is_empty());
    rig.wait_until(tripped_at + ms(500));
    assert_eq!(rig.sent.len(), 1);
}

fn far() -> Moment {
    at(600_000)
}

#[test]
fn request_that_kills_replicas_gets_two_tries() {
    let mut rig = Rig::slow(4);
    for replica in 1..4 {
        rig.add(replica, &slow(4));
    }
    let id = rig.arrive(|arrival| arrival.until = Until::both(far())).unwrap();
    for _ in 0..2 {
        let replica = rig.sent.last().unwrap().replica;
        rig.lose(replica);
    }
    assert_eq!(rig.failed, [id]);
    assert_eq!(rig.sent.len(), 2);
    assert_eq!(rig.machine.limits().count(), 2, "two replicas are left");
}

#[test]
fn requests_of_a_lost_replica_are_retried_if_in_time() {
    let mut rig = Rig::slow(4);
    rig.add(1, &slow(4));
    let in_time = rig.one();
    assert_eq!(rig.sent[0].replica, 0);
    rig.wait_until(at(30));
    rig.lose(0);
    assert_eq!(rig.sent[1].requests, [in_time]);
    assert_eq!(rig.sent[1].replica, 1);
    rig.wait_until(at(45));
    rig.lose(1);
    assert_eq!(rig.failed, [in_time]);
    assert!(rig.machine.is_idle());
}

#[test]
fn a_spoilt_batch_is_halved_until_only_the_culprit_fails() {
    let mut rig = Rig::slow(16);
    rig.grow_to(16);
    let late = rig.now + ms(10_000);
    rig.arrive(|arrival| arrival.until = Until::both(late)).unwrap();
    let ids: Vec<u64> =
        (0..16).map(|_| rig.arrive(|arrival| arrival.until = Until::both(late)).unwrap()).collect();
    rig.end_last(ms(11), Ended::Done);
    let culprit = ids[11];
    let mut answered = Vec::new();
    while rig.machine.in_flight() > 0 {
        let batch = rig.sent.last().unwrap().clone();
        let spoilt = batch.requests.contains(&culprit);
        if !spoilt {
            answered.extend(batch.requests.clone());
        }
        rig.end_last(ms(11), if spoilt { Ended::RequestFault } else { Ended::Done });
    }
    answered.sort_unstable();
    assert_eq!(rig.failed, [culprit]);
    assert_eq!(answered, ids.iter().copied().filter(|id| *id != culprit).collect::<Vec<_>>());
    assert!(rig.sent.len() <= 12, "{} batches for one culprit among 16", rig.sent.len());
}

#[test]
fn tight_request_waits_for_the_faster_replica() {
    let mut rig = Rig::new(settings(4), Slo);
    rig.add(0, &[(1, ms(5)), (4, ms(8))]);
    rig.add(1, &[(1, ms(40)), (4, ms(45))]);
    let first = rig.one();
    assert_eq!((rig.sent[0].replica, rig.sent[0].requests.clone()), (0, vec![first]));
    let tight = rig.arrive(|arrival| arrival.until = Until::both(at(20))).unwrap();
    assert_eq!(rig.sent.len(), 1, "the slow one cannot save it");
    rig.end_last(ms(5), Ended::Done);
    assert_eq!((rig.sent[1].replica, rig.sent[1].requests.clone()), (0, vec![tight]));
}

#[test]
fn drain_of_last_replica_refuses_waiting_at_next_tick() {
    let mut rig = Rig::slow(4);
    let running = rig.one();
    let waiting = rig.one();
    rig.machine.drain_replica(0);
    rig.wait_until(rig.now);
    assert_eq!(rig.refused, [(waiting, Refusal::NoReplica)]);
    assert_eq!(rig.arrive(|_| {}), Err(Refusal::NoReplica));
    let batch = rig.sent[0].clone();
    assert_eq!(batch.requests, [running]);
    assert!(rig.finish(&batch, Ended::Done).is_some());
    assert_eq!(rig.machine.limits().count(), 0);
}

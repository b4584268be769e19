//! Batches that are sent before their replica is free, and those that had better not be.

use super::*;

#[test]
fn replica_faster_than_its_link_gets_full_batches() {
    let us = Duration::from_micros;
    let mut rig = Rig::new(Settings::routed(ms(1_000), 64), Slo);
    // To the whole microsecond, nothing is gained by a second row.
    rig.add(0, &[(1, us(1)), (2, us(3)), (4, us(6)), (64, us(99))]);
    for round in 0..200 {
        while rig.machine.waiting() < 64 {
            rig.one();
        }
        let batch = rig.sent[round].clone();
        rig.wait_until(rig.now + us(80));
        rig.finish(&batch, Ended::Done);
    }
    assert_eq!(rig.sent[199].rows, 64);
}

#[test]
fn a_batch_is_sent_ahead_when_the_running_one_is_about_to_end() {
    let mut rig = Rig::new(Settings { lead: Duration::from_micros(500), ..settings(8) }, Slo);
    rig.add(0, &slow(8));
    rig.grow_to(8);
    let from = rig.now;
    rig.one();
    rig.one();
    rig.wait_until(from + Duration::from_micros(10_400));
    assert_eq!(rig.sent.len(), 1);
    rig.wait_until(from + Duration::from_micros(10_500));
    assert_eq!(rig.sent.len(), 2);
    rig.one();
    rig.wait_until(from + ms(11));
    assert_eq!(rig.sent.len(), 2, "a replica holds two batches at most");
}

#[test]
fn small_batch_waits_for_a_response_about_to_come() {
    let us = Duration::from_micros;
    let mut rig = Rig::new(Settings { lead: us(300), ..settings(4) }, EarlyDrop);
    rig.add(0, &[(1, us(200)), (4, us(200))]);
    for _ in 0..4 {
        rig.one();
    }
    assert_eq!(rig.sent.len(), 1, "three could be four");
    rig.one();
    assert_eq!(rig.sent.len(), 2, "four could not be more");
    rig.one();
    rig.one();
    for answered in 0..2 {
        let batch = rig.sent[answered].clone();
        rig.wait_until(rig.now + us(200));
        rig.finish(&batch, Ended::Done);
    }
    let rows: Vec<u32> = rig.sent.iter().map(|batch| batch.rows).collect();
    assert_eq!(rows, [1, 4, 2]);
}

#[test]
fn nothing_is_sent_ahead_to_a_replica_whose_times_vary() {
    let mut rig = Rig::new(Settings { lead: Duration::from_micros(500), ..settings(1) }, Slo);
    rig.add(0, &slow(1));
    for round in 0..40 {
        rig.one();
        rig.end_last(ms(7 + 8 * (round % 2)), Ended::Done);
    }
    rig.sent.clear();
    rig.one();
    rig.one();
    rig.wait_until(rig.now + ms(20));
    assert_eq!(rig.sent.len(), 1);
}

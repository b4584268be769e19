//! Taking turns in one process.

use super::*;

/// One replica of 10 ms and 1 ms a row that takes turns of at most `longest_ms`.
fn sharing(longest_ms: u64) -> Rig {
    let mut rig = Rig::new(settings(32), Deadline);
    rig.add(0, &slow(32));
    rig.machine.take_turns(0, Some(ms(longest_ms)));
    rig
}

impl Rig {
    fn come(&mut self) {
        self.arrive(|_| {}).expect("it is let in");
    }

    fn step_up(&mut self) {
        let mut effects = Vec::new();
        self.machine.step_up(0, self.now, &mut effects);
        self.note(effects);
    }
}

#[test]
fn batch_forms_when_the_shared_process_is_free() {
    let mut rig = sharing(30);
    rig.machine.step_aside(0, at(20));
    for _ in 0..4 {
        rig.come();
        rig.wait_until(rig.now + ms(3));
    }
    assert_eq!(rig.sent.len(), 0);
    rig.step_up();
    assert_eq!(rig.sent[0].rows, 4);
    assert_eq!(rig.sent[0].ends, rig.now + ms(14));
}

#[test]
fn after_its_own_batch_it_waits_to_be_told_to_go_on() {
    let mut rig = sharing(30);
    rig.come();
    rig.end_last(ms(11), Ended::Done);
    rig.come();
    assert_eq!(rig.sent.len(), 1);
    rig.step_up();
    assert_eq!(rig.sent.len(), 2);
}

#[test]
fn nobody_waits_for_ever_for_a_turn_that_is_not_passed_on() {
    let mut rig = sharing(20);
    rig.machine.step_aside(0, at(5));
    rig.come();
    rig.wait_until(at(24));
    assert_eq!(rig.sent.len(), 0);
    rig.wait_until(at(25));
    assert_eq!(rig.sent.len(), 1);
}

#[test]
fn no_batch_takes_longer_than_the_longest_turn() {
    let rows = |longest_ms: u64| {
        let mut rig = sharing(longest_ms);
        rig.machine.step_aside(0, at(10));
        (0..16).for_each(|_| rig.come());
        rig.step_up();
        rig.sent[0].rows
    };
    // 10 ms and 1 ms a row; this rule sends powers of two.
    assert_eq!((rows(30), rows(25), rows(13)), (16, 8, 2));
}

#[test]
fn leeway_is_the_objective_less_the_batch() {
    let mut rig = sharing(30);
    assert_eq!(rig.machine.leeway(0, rig.now), f64::INFINITY);
    rig.machine.step_aside(0, at(20));
    rig.come();
    rig.wait_until(at(14));
    assert_eq!(rig.machine.leeway(0, rig.now), 0.5);
}

#[test]
fn longest_turn_follows_tightest_objective_and_sharers() {
    assert_eq!(longest_turn(&[ms(100)]), None);
    assert_eq!(longest_turn(&[ms(100), ms(900)]), Some(ms(60)));
    assert_eq!(longest_turn(&[ms(100), ms(900), ms(200)]), Some(ms(40)));
}

use super::*;

const NOW: Terms = Terms { notice_ms: 10_000, now_ms: 100_000, elapsed_s: 1.0, retries: 1 };

fn seat(position: &str) -> SliceId {
    SliceId { worker: "w".into(), gpu: 0, position: position.into() }
}

fn running() -> Life {
    let mut record = Life::new(0);
    record.gpus = 0.5;
    begin(&mut record, vec![seat("a"), seat("b")], "first".into(), 60_000);
    record.enter(State::Running, "all run", 61_000);
    record
}

fn told(record: &Life, state: RankState) -> RankSeen {
    RankSeen::Reported(Rank { run: record.run, state, ..Rank::default() })
}

fn ended(record: &Life, code: i32) -> RankSeen {
    told(record, RankState::Ended(RankEnd::Exited { code }))
}

fn stopped(record: &Life, then: State) -> Life {
    let mut record = record.clone();
    let (seats, reason) = (Vec::new(), "inference needs the slices".to_owned());
    let stop = Stopping { then, seats, reason, notice_ms: 10_000, by_ms: 105_000 };
    record.stop(State::Noticed, stop, 95_000);
    record
}

#[test]
fn a_gang_runs_once_all_its_ranks_do() {
    let mut record = running();
    record.state = State::Starting;
    let up = told(&record, RankState::Running);
    let half = settle(&record, &[up.clone(), RankSeen::Unknown], &NOW).0;
    assert_eq!(half.state, State::Starting);
    let whole = settle(&record, &[up.clone(), up], &NOW).0;
    assert_eq!((whole.state, whole.ran_s, whole.attained_gpu_s), (State::Running, 1.0, 0.5));
}

#[test]
fn it_is_done_when_all_ranks_left_with_0_and_not_before() {
    let record = running();
    let up = told(&record, RankState::Running);
    assert_eq!(settle(&record, &[ended(&record, 0), up], &NOW).0.state, State::Running);
    let done = settle(&record, &[ended(&record, 0), ended(&record, 0)], &NOW).0;
    assert_eq!((done.state, done.seats, done.lost_gpu_s), (State::Done, vec![], 0.0));
    assert_eq!(done.last_seats.len(), 2, "its log is still there");
}

#[test]
fn failed_rank_stops_the_gang_and_the_job_retries_its_limit() {
    let record = running();
    let up = told(&record, RankState::Running);
    let told = settle(&record, &[up, ended(&record, 3)], &NOW).0;
    assert_eq!(told.state, State::Noticed);
    assert_eq!(told.reason, "rank 1 exited with 3; the others stop");
    let again = settle(&told, &[ended(&record, 143), ended(&record, 3)], &NOW).0;
    assert_eq!((again.state, again.failures), (State::Queued, 1));
    assert_eq!(again.not_before_ms, Some(NOW.now_ms + 1_000));
    let mut second = again;
    begin(&mut second, vec![seat("a"), seat("b")], "again".into(), 100_000);
    let ends = [ended(&second, 3), ended(&second, 3)];
    let failed = settle(&second, &ends, &NOW).0;
    assert_eq!((failed.state, failed.failures), (State::Failed, 2));
    assert_eq!(failed.reason, "rank 0 exited with 3 (failed 2 times)");
}

#[test]
fn stopped_job_waits_to_resume_unless_it_had_ended() {
    let record = stopped(&running(), State::Preempted);
    let left = settle(&record, &[ended(&record, 143), ended(&record, 0)], &NOW).0;
    assert_eq!((left.state, left.failures), (State::Preempted, 0));
    let zero = [ended(&record, 0), ended(&record, 0)];
    assert_eq!(settle(&record, &zero, &NOW).0.state, State::Preempted);
    let progress = Progress { step: 9, steps: Some(9), ..Progress::default() };
    let at_end = Life { progress: Some(progress), ..record };
    assert_eq!(settle(&at_end, &zero, &NOW).0.state, State::Done);
}

#[test]
fn what_was_done_since_the_last_checkpoint_is_lost_and_no_more() {
    let with = |checkpoint_ms| {
        let progress = Progress { step: 5, steps: None, checkpoint: Some(4), checkpoint_ms };
        Life { progress: Some(progress), ..stopped(&running(), State::Preempted) }
    };
    let lost = |record: Life| {
        let (after, counts) = settle(&record, &[ended(&record, 1), ended(&record, 1)], &NOW);
        assert_eq!(after.lost_gpu_s, counts.lost_gpu_s);
        (after.lost_gpu_s, after.checkpoint_takes_ms)
    };
    assert_eq!(lost(with(Some(98_000))), (1.0, Some(3_000)), "two seconds on half a GPU");
    assert_eq!(lost(with(Some(1_000))), (20.0, None), "that was an earlier start's");
    assert_eq!(lost(with(None)), (20.0, None));
}

#[test]
fn one_that_does_not_stop_in_time_is_said_to_be_killed() {
    let record = stopped(&running(), State::Preempted);
    let killed = told(&record, RankState::Ended(RankEnd::Killed { signal: 9, overdue: true }));
    let (after, counts) = settle(&record, &[killed.clone(), killed], &NOW);
    assert_eq!((after.state, counts.overdue), (State::Preempted, 1));
    assert!(after.reason.ends_with("rank 0 did not stop in time and was killed"));
}

#[test]
fn a_limit_that_was_broken_would_be_broken_again() {
    let record = running();
    let what = "its folder holds 9 MiB, 8 are allowed".to_owned();
    let over = told(&record, RankState::Ended(RankEnd::Exceeded { what }));
    let after = settle(&record, &[over, ended(&record, 1)], &NOW).0;
    assert_eq!((after.state, after.failures), (State::Failed, 0));
    assert_eq!(after.reason, "rank 0 was ended: its folder holds 9 MiB, 8 are allowed");
}

#[test]
fn ranks_unreachable_past_their_loan_are_no_job_failure() {
    let record = running();
    let gone = settle(&record, &[RankSeen::Gone, RankSeen::Gone], &NOW).0;
    assert_eq!((gone.state, gone.failures), (State::Preempted, 0));
    let expired = told(&record, RankState::Ended(RankEnd::Expired));
    let stopped = settle(&record, &[expired.clone(), expired], &NOW).0;
    assert_eq!((stopped.state, stopped.failures), (State::Preempted, 0));
    let up = told(&record, RankState::Running);
    let half = settle(&record, &[up, RankSeen::Gone], &NOW).0;
    assert_eq!(half.stop.unwrap().then, State::Preempted);
}

#[test]
fn what_is_told_of_an_earlier_start_does_not_count() {
    let record = running();
    let old = RankState::Ended(RankEnd::Exited { code: 0 });
    let old = RankSeen::Reported(Rank { run: 0, state: old, ..Rank::default() });
    assert_eq!(settle(&record, &[old.clone(), old], &NOW).0.state, State::Running);
}

#[test]
fn another_width_is_another_start_on_the_slices_that_are_left() {
    let mut record = running();
    let (then, seats, reason) = (State::Starting, vec![seat("a")], "goes on with 1".to_owned());
    let stop = Stopping { then, seats, reason, notice_ms: 1_000, by_ms: 101_000 };
    record.stop(State::Shrinking, stop, 100_000);
    let after = settle(&record, &[ended(&record, 143), ended(&record, 143)], &NOW).0;
    assert_eq!((after.state, after.run), (State::Starting, record.run + 1));
    assert_eq!((after.seats, after.stop), (vec![seat("a")], None));
}

#[test]
fn a_cancelled_job_is_cancelled_however_its_ranks_end() {
    let record = stopped(&running(), State::Cancelled);
    let after = settle(&record, &[ended(&record, 0), RankSeen::Gone], &NOW).0;
    assert_eq!(after.state, State::Cancelled);
}

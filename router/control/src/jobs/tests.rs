use std::path::PathBuf;

use super::*;

fn keep(jobs: &Jobs, before: &JobRecord, after: &JobRecord) -> Result<(), KeepError> {
    let (id, before, after) = (before.id, before.life.clone(), after.life.clone());
    jobs.keep(&[JobChange { id, before, after }], Counts::default())
}

struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("jobs-{}-{test}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn open(&self) -> Arc<Jobs> {
        Jobs::open(Some(&self.0)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn spec(name: &str) -> JobSpec {
    JobSpec {
        name: name.to_owned(),
        tenant: None,
        argv: vec!["train".to_owned()],
        environment: BTreeMap::new(),
        slices_min: 1,
        slices_max: 1,
        profile: None,
        memory_mib: 0,
        takes_s: None,
        deadline_ms: None,
        retries: 0,
        rest: BTreeMap::new(),
    }
}

fn submit(jobs: &Jobs, name: &str, key: Option<&str>) -> Result<Submitted, JobError> {
    jobs.submit(spec(name), key.map(str::to_owned), 3, 1_000)
}

#[test]
fn jobs_and_their_numbers_outlive_the_process() {
    let folder = Folder::new("outlive");
    let jobs = folder.open();
    let first = submit(&jobs, "a", None).unwrap().record;
    let mut started = first.clone();
    started.life.enter(State::Starting, "first in the order", 2_000);
    keep(&jobs, &first, &started).unwrap();
    drop(jobs);
    let jobs = folder.open();
    assert_eq!(jobs.get(1).unwrap().brief.state, State::Starting);
    assert_eq!(submit(&jobs, "b", None).unwrap().record.id, 2);
}

#[test]
fn a_submission_sent_again_is_the_same_job() {
    let folder = Folder::new("again");
    let jobs = folder.open();
    let first = submit(&jobs, "a", Some("key")).unwrap();
    drop(jobs);
    let jobs = folder.open();
    let again = submit(&jobs, "a", Some("key")).unwrap();
    assert_eq!((again.record.id, first.is_new, again.is_new), (first.record.id, true, false));
    let other = submit(&jobs, "b", Some("key")).unwrap_err();
    assert!(matches!(other, JobError::KeyReused { id: 1 }), "{other}");
}

#[test]
fn a_tenant_with_too_many_jobs_is_refused_until_one_ends() {
    let jobs = Jobs::open(None).unwrap();
    for name in ["a", "b", "c"] {
        submit(&jobs, name, None).unwrap();
    }
    let refused = submit(&jobs, "d", None).unwrap_err();
    assert!(matches!(refused, JobError::TooMany { unfinished: 3, most: 3, .. }), "{refused}");
    jobs.cancel(2, 1_000, 2_000).unwrap();
    submit(&jobs, "d", None).unwrap();
}

#[test]
fn a_waiting_job_is_cancelled_at_once_and_a_running_one_is_told() {
    let jobs = Jobs::open(None).unwrap();
    let waiting = submit(&jobs, "a", None).unwrap().record.id;
    let before = submit(&jobs, "b", None).unwrap().record;
    let mut running = before.clone();
    running.life.enter(State::Running, "it runs", 2_000);
    keep(&jobs, &before, &running).unwrap();
    jobs.cancel(waiting, 1_000, 3_000).unwrap();
    jobs.cancel(2, 1_000, 3_000).unwrap();
    let states = [1, 2].map(|id| jobs.get(id).unwrap().brief.state);
    assert_eq!(states, [State::Cancelled, State::Noticed]);
    let unknown = jobs.cancel(9, 1_000, 3_000).unwrap_err();
    assert!(matches!(unknown, JobError::Unknown { .. }), "{unknown}");
}

#[test]
fn a_request_that_came_meanwhile_is_not_overruled() {
    let jobs = Jobs::open(None).unwrap();
    let read = submit(&jobs, "a", None).unwrap().record;
    jobs.cancel(1, 1_000, 2_000).unwrap();
    let mut started = read.clone();
    started.life.enter(State::Starting, "first in the order", 3_000);
    keep(&jobs, &read, &started).unwrap();
    assert_eq!(jobs.get(1).unwrap().brief.state, State::Cancelled);
}

#[test]
fn how_far_a_job_is_is_written_only_now_and_then() {
    let folder = Folder::new("now-and-then");
    let jobs = folder.open();
    let before = submit(&jobs, "a", None).unwrap().record;
    let log = folder.0.join(FILE);
    let length = || std::fs::metadata(&log).unwrap().len();
    let quiet = length();
    let mut after = before.clone();
    after.life.progress = Some(Progress { step: 5, ..Progress::default() });
    keep(&jobs, &before, &after).unwrap();
    assert_eq!((length(), jobs.list()[0].progress.unwrap().step), (quiet, 5));
    jobs.write_rest(BTreeMap::new()).unwrap();
    assert!(length() > quiet);
    drop(jobs);
    assert_eq!(folder.open().list()[0].progress.unwrap().step, 5);
}

#[test]
fn a_loan_is_overdue_once_its_notice_is_over_and_not_before() {
    let jobs = Jobs::open(None).unwrap();
    let before = submit(&jobs, "a", None).unwrap().record;
    submit(&jobs, "b", None).unwrap();
    let mut running = before.clone();
    running.life.enter(State::Running, "it runs", 2_000);
    running.life.seats = vec![SliceId { worker: "w".into(), gpu: 0, position: "1g.10gb@0".into() }];
    keep(&jobs, &before, &running).unwrap();
    let loans = |now_ms| {
        let LoansState { lent, returning, overdue } = jobs.state(Vec::new(), now_ms).loans;
        (lent, returning, overdue)
    };
    assert_eq!(loans(3_000), (1, 0, 0));
    jobs.cancel(1, 1_000, 3_000).unwrap();
    assert_eq!(loans(4_000 + GRACE_MS), (0, 1, 0));
    assert_eq!(loans(4_001 + GRACE_MS), (0, 0, 1));
    let state = jobs.state(Vec::new(), 5_000);
    assert_eq!((state.states["queued"], state.states["noticed"]), (1, 1));
    assert_eq!(state.shown.iter().map(|job| job.id).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn a_job_that_waits_for_its_next_try_waits_no_longer_when_the_clock_is_set_back_a_day() {
    const DAY_MS: u64 = 86_400_000;
    let folder = Folder::new("clock");
    let jobs = folder.open();
    let first = submit(&jobs, "a", None).unwrap().record;
    let mut failed = first.clone();
    failed.life.enter(State::Queued, "it failed and is tried again", DAY_MS + 2_000);
    failed.life.not_before_ms = Some(DAY_MS + 5_000);
    failed.life.started_ms = DAY_MS + 1_000;
    keep(&jobs, &first, &failed).unwrap();
    drop(jobs);
    let jobs = folder.open();
    jobs.redate(2_000);
    let record = jobs.unfinished().remove(0);
    assert_eq!((record.life.since_ms, record.life.not_before_ms), (2_000, Some(5_000)));
    assert_eq!((record.life.started_ms, record.submitted_ms), (1_000, 1_000));
    // A clock that goes on, or is set forward, changes nothing.
    jobs.redate(2 * DAY_MS);
    assert_eq!(jobs.unfinished().remove(0).life.not_before_ms, Some(5_000));
}

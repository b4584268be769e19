//! `kill -9` of router, worker, job and the process over it, at every state a job can be in.
//!
//! Whoever is killed: the job is not lost, no rank is there twice, no slice stays with the dead, and
//! what is said of the job is true.

use std::{
    fs::{self, OpenOptions},
    path::PathBuf,
    process::Command,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    process,
    setup::Setup,
    split::Split,
    training::{Counting, GPU, STEPS, job, wait_state, want},
    wait::eventually,
};

/// So long that nothing here ends for want of time.
const LOANS: &str = "[loans]\nallow = [\"/bin/sh\"]\nnotice_s = 600\nlease_s = 3600\n";

/// A router and a worker of three slices, of which a model has one.
struct Fleet {
    split: Split,
    gpus: String,
    hold: PathBuf,
}

impl Fleet {
    fn start() -> Self {
        let setup = Setup::new()
            .router("state_dir = \"state\"")
            .sleeper("m", 5, "slo_ms = 20000\nmemory_mib = 15000\nreplicas = { min = 1, max = 3 }")
            .tables(LOANS);
        let gpus = format!("{LOANS}{GPU}");
        let split = Split::start(setup, &gpus);
        let hold = split.router.folder().path().join("hold");
        Self { split, gpus, hold }
    }

    fn run(&self) -> PathBuf {
        self.split.worker.folder().path().join("run")
    }

    /// A job that runs on `slices`, has done half its steps, and stops only when [released](Self::release).
    #[track_caller]
    fn job(&self, slices: &Value, more: &Value) -> Counting {
        let mut environment = json!({"HOLD": self.hold});
        environment.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let asked = json!({"slices": slices, "environment": environment});
        let training = Counting::submit_with(&self.split.router, asked, &self.run());
        training.wait_half(&self.split.router);
        training
    }

    fn release(&self) {
        fs::write(&self.hold, "").unwrap();
    }

    /// Kills the router and then the worker; nothing may come of it but that others take over.
    #[track_caller]
    fn replace_both(self, training: &Counting, state: &str) -> Self {
        let before = job(&self.split.router, training.id);
        assert_eq!(before["state"], state, "{before:#}");
        let split = self.split.replace_router();
        let after = job(&split.router, training.id);
        assert_eq!((&after["state"], &after["history"]), (&before["state"], &before["history"]));
        let split = split.replace_worker(&self.gpus);
        eventually("the new worker is heard", || (!split.router.slices().is_empty()).then_some(()));
        let seats = before["seats"].as_array().unwrap().len();
        eventually("it has found the ranks", || {
            let slices = split.router.slices();
            let known = |slice: &&Value| {
                ["running", "checkpointing", "stopping"]
                    .iter()
                    .any(|word| slice["rank"]["state"] == **word)
            };
            (slices.iter().filter(known).count() == seats).then_some(())
        });
        let found = job(&split.router, training.id);
        assert_eq!((&found["state"], &found["starts"]), (&before["state"], &before["starts"]));
        Self { split, ..self }
    }

    /// Ends all: the job is done after so many failures, was nowhere twice, and holds nothing.
    #[track_caller]
    fn finish(self, training: &Counting, failures: u32) {
        self.release();
        want(&self.split.router, 1);
        training.go();
        let router = &self.split.router;
        let done = wait_state(router, training.id, "done");
        assert_eq!(done["progress"]["step"], STEPS, "{done:#}");
        assert_eq!(done["failures"][0], failures, "{done:#}");
        assert_eq!(done["starts"], training.starts(0).len(), "{done:#}");
        eventually("no slice is the job's", || {
            let free = |slice: &Value| slice["rank"] == Value::Null;
            router.slices().iter().all(free).then_some(())
        });
        let loans = &router.ask_admin("/admin/v1/state").json()["jobs"]["loans"];
        assert_eq!(*loans, json!({"lent": 0, "returning": 0, "overdue": 0}));
    }
}

/// Who is killed last, of those that end with the kill.
#[derive(Clone, Copy, Debug)]
enum Last {
    Job,
    Keeper,
}

impl Last {
    /// Kills it, of a rank; its whole rank is gone then.
    #[track_caller]
    fn kill(self, training: &Counting, rank: u32) {
        let pid = training.pid(rank);
        match self {
            Self::Job => process::signal(pid, Signal::KILL),
            Self::Keeper => process::signal(process::parent(pid), Signal::KILL),
        }
        eventually("the rank is gone", || (!process::is_alive(pid)).then_some(()));
    }
}

#[track_caller]
fn while_it_runs(last: Last) {
    let fleet = Fleet::start();
    let training = fleet.job(&json!(1), &json!({}));
    let fleet = fleet.replace_both(&training, "running");
    last.kill(&training, 0);
    eventually("it was started again", || (training.starts(0).len() == 2).then_some(()));
    fleet.finish(&training, 1);
}

/// A job told to stop, which is in `state` until it is released.
#[track_caller]
fn while_it_stops(state: &str, more: &Value, last: Last) {
    let fleet = Fleet::start();
    let training = fleet.job(&json!(1), more);
    want(&fleet.split.router, 3);
    wait_state(&fleet.split.router, training.id, state);
    let fleet = fleet.replace_both(&training, state);
    last.kill(&training, 0);
    wait_state(&fleet.split.router, training.id, "preempted");
    fleet.finish(&training, 0);
}

#[track_caller]
fn while_it_shrinks(last: Last) {
    let fleet = Fleet::start();
    let training = fleet.job(&json!("1..2"), &json!({}));
    eventually("both ranks have begun", || (training.starts(1).len() == 1).then_some(()));
    want(&fleet.split.router, 2);
    wait_state(&fleet.split.router, training.id, "shrinking");
    let fleet = fleet.replace_both(&training, "shrinking");
    last.kill(&training, 1);
    assert_eq!(job(&fleet.split.router, training.id)["state"], "shrinking", "rank 0 still stops");
    fleet.release();
    eventually("it goes on with one rank", || {
        (training.starts(0).last() == Some(&(STEPS / 2, 1))).then_some(())
    });
    fleet.finish(&training, 0);
}

#[test]
fn running_job_is_found_again_and_retried_if_killed() {
    while_it_runs(Last::Job);
}

#[test]
fn running_job_is_retried_if_its_supervisor_was_killed() {
    while_it_runs(Last::Keeper);
}

#[test]
fn noticed_job_stays_noticed_and_waits_once_killed() {
    while_it_stops("noticed", &json!({"DEAF": "1"}), Last::Job);
}

#[test]
fn noticed_job_waits_once_its_supervisor_is_killed() {
    while_it_stops("noticed", &json!({"DEAF": "1"}), Last::Keeper);
}

#[test]
fn checkpointing_job_continues_and_waits_once_killed() {
    while_it_stops("checkpointing", &json!({}), Last::Job);
}

#[test]
fn checkpointing_job_waits_once_its_supervisor_is_killed() {
    while_it_stops("checkpointing", &json!({}), Last::Keeper);
}

#[test]
fn shrinking_job_shrinks_even_if_a_rank_is_killed() {
    while_it_shrinks(Last::Job);
}

#[test]
fn shrinking_job_shrinks_even_if_a_supervisor_is_killed() {
    while_it_shrinks(Last::Keeper);
}

#[test]
fn preempted_job_waits_and_resumes_whatever_is_killed() {
    let fleet = Fleet::start();
    fleet.release();
    let training = fleet.job(&json!(1), &json!({}));
    want(&fleet.split.router, 3);
    wait_state(&fleet.split.router, training.id, "preempted");
    let fleet = fleet.replace_both(&training, "preempted");
    assert_eq!(training.starts(0), [(0, 1)], "nobody started it");
    fleet.finish(&training, 0);
}

#[test]
fn a_queued_job_waits_whoever_is_killed_and_runs_once() {
    let fleet = Fleet::start();
    fleet.release();
    let ahead = fleet.job(&json!(2), &json!({}));
    let queued = Counting::submit(&fleet.split.router, 1, &fleet.run());
    let Fleet { split, gpus, hold } = fleet;
    let split = split.replace_router();
    assert_eq!(job(&split.router, queued.id)["state"], "queued");
    let split = split.replace_worker(&gpus);
    wait_state(&split.router, ahead.id, "running");
    assert_eq!(job(&split.router, queued.id)["state"], "queued");
    ahead.go();
    wait_state(&split.router, ahead.id, "done");
    Fleet { split, gpus, hold }.finish(&queued, 0);
}

/// A job whose start goes no further before a file is taken away: a pipe which nobody reads stands
/// where its keeper is to begin its progress.
struct Stuck {
    fleet: Fleet,
    training: Counting,
    pipe: PathBuf,
    keeper: u32,
}

impl Stuck {
    fn start() -> Self {
        let fleet = Fleet::start();
        let folder = fleet.run().join("jobs/1/rank-0");
        fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("progress");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let training = Counting::submit(&fleet.split.router, 1, &fleet.run());
        assert_eq!(training.id, 1);
        let keeper = eventually("its keeper is there", || {
            let children = process::children(fleet.split.worker.pid());
            children
                .into_iter()
                .find(|pid| process::words(*pid).get(1).is_some_and(|word| word == "rank"))
        });
        wait_state(&fleet.split.router, training.id, "starting");
        Self { fleet, training, pipe, keeper }
    }

    /// Takes the pipe away; who waits for a reader goes on.
    fn let_go(&self) {
        let reader = OpenOptions::new().read(true).write(true).open(&self.pipe).unwrap();
        fs::remove_file(&self.pipe).unwrap();
        drop(reader);
    }
}

#[test]
fn starting_job_starts_once_if_router_and_worker_are_killed() {
    let stuck = Stuck::start();
    // Else it would give the start up, should all this take long.
    stuck.fleet.split.worker.signal(Signal::STOP);
    let Fleet { split, gpus, hold } = stuck.fleet;
    let split = split.replace_router();
    assert_eq!(job(&split.router, 1)["state"], "starting");
    let split = split.replace_worker(&gpus);
    let stuck = Stuck { fleet: Fleet { split, gpus, hold }, ..stuck };
    stuck.let_go();
    stuck.training.wait_half(&stuck.fleet.split.router);
    assert_eq!(stuck.training.starts(0), [(0, 1)]);
    stuck.fleet.finish(&stuck.training, 0);
}

#[test]
fn a_starting_job_whose_keeper_is_killed_is_tried_again() {
    let stuck = Stuck::start();
    process::signal(stuck.keeper, Signal::KILL);
    let failed = eventually("it has failed", || {
        let found = job(&stuck.fleet.split.router, 1);
        (found["failures"][0] == 1).then_some(found)
    });
    let mut told = failed["history"].as_array().unwrap().iter().chain([&failed]);
    let not_begun = "rank 0 was lost: not begun";
    assert!(told.any(|step| step["reason"].as_str().unwrap().starts_with(not_begun)));
    stuck.let_go();
    let Stuck { fleet, training, .. } = stuck;
    training.wait_half(&fleet.split.router);
    // The first start was never begun, so that its program has written of one only.
    assert_eq!(training.starts(0), [(0, 1)]);
    fleet.release();
    training.go();
    wait_state(&fleet.split.router, 1, "done");
}

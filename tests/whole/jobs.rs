//! Training jobs on idle slices: they run, give way to inference, and go on.

use rustix::process::Signal;

use crate::{
    program::sluice,
    training::{
        Counting, STEPS, cancel, job, lender, post, shell, states, wait_ready, wait_state, want,
    },
};

#[test]
fn a_job_of_the_command_line_runs_on_an_idle_slice_and_ends() {
    let program = lender("").start();
    let url = format!("http://{}", program.admin());
    let job = |args: &[&str]| {
        let mut all = vec!["job", args[0], "--url", &url];
        all.extend(&args[1..]);
        let output = sluice(&all);
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), said, String::from_utf8(output.stderr).unwrap())
    };
    let line = "echo on $CUDA_VISIBLE_DEVICES; echo rank $RANK of $WORLD_SIZE";
    let hello =
        ["submit", "--name", "hello", "--idempotency-key", "one", "--", "/bin/sh", "-c", line];
    let submitted = job(&hello);
    assert_eq!((submitted.0, submitted.1.as_str()), (Some(0), "1\n"), "{}", submitted.2);
    let (code, log, why) = job(&["logs", "-f", "1"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(log.starts_with("on MIG-") && log.ends_with("rank 0 of 1\n"), "{log:?}");
    let again = job(&hello);
    assert_eq!((again.0, again.1.as_str()), (Some(0), "1\n"), "it was submitted before");
    let (_, list, _) = job(&["list"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    let (_, shown, _) = job(&["show", "1"]);
    assert!(shown.contains("done since") && shown.contains("starts       1,"), "{shown}");
    let (code, _, why) = job(&["submit", "--", "/usr/bin/env", "true"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("\"/usr/bin/env\" is not allowed; allowed are /bin/sh"), "{why}");
    let (code, _, why) = job(&["logs", "9"]);
    assert_eq!(code, Some(1));
    assert!(why.contains("there is no job 9"), "{why}");
}

#[test]
fn reclaimed_job_resumes_from_its_checkpoint() {
    let program = lender("notice_s = 20").start();
    let run = program.folder().path().join("state/run");
    let training = Counting::submit(&program, 1, &run);
    training.wait_half(&program);
    // Two slices are left for three replicas.
    want(&program, 3);
    wait_ready(&program, 3);
    let left = wait_state(&program, training.id, "preempted");
    assert!(!training.is_alive(0), "its slice serves");
    assert!(states(&left).contains(&"noticed".to_owned()), "{left:#}");
    let lost = left["lost_gpu_s"].as_f64().unwrap();
    assert!(lost < 20.0 * 2.0 / 7.0, "{lost} GPU-seconds are more than the notice");
    want(&program, 1);
    wait_state(&program, training.id, "running");
    training.go();
    let done = wait_state(&program, training.id, "done");
    assert_eq!(done["progress"]["step"], STEPS);
    assert_eq!(training.starts(0), [(0, 1), (STEPS / 2, 1)]);
}

#[test]
fn a_gang_starts_whole_is_preempted_whole_and_resumes_whole() {
    let program = lender("notice_s = 20").start();
    let run = program.folder().path().join("state/run");
    let training = Counting::submit(&program, 2, &run);
    training.wait_half(&program);
    want(&program, 2);
    wait_ready(&program, 2);
    let left = wait_state(&program, training.id, "preempted");
    assert_eq!(left["seats"].as_array().unwrap().len(), 0);
    assert!(![0, 1].into_iter().any(|rank| training.is_alive(rank)), "half of it is left");
    want(&program, 1);
    training.go();
    wait_state(&program, training.id, "done");
    for rank in [0, 1] {
        let starts = training.starts(rank);
        assert_eq!(starts.iter().map(|(_, width)| *width).collect::<Vec<_>>(), [2, 2]);
        assert!(starts[1].0 > 0, "rank {rank} restarted from 0: {starts:?}");
    }
}

#[test]
fn no_job_is_lost_or_run_twice_when_all_is_killed_at_once() {
    let mut program = lender("").start();
    let run = program.folder().path().join("state/run");
    let training = Counting::submit(&program, 2, &run);
    training.wait_half(&program);
    let waiting = shell(&program, "echo later");
    let before = [0, 1].map(|rank| training.pid(rank));
    program.signal(Signal::KILL);
    program.wait_end();
    let config = program.folder().path().join("sluice.toml");
    let mut program = program.again(&["up", "--config", config.to_str().unwrap()]);
    program.wait_ready();
    wait_state(&program, training.id, "running");
    assert_eq!([0, 1].map(|rank| training.pid(rank)), before, "it was restarted");
    assert_eq!(job(&program, waiting)["state"], "queued");
    training.go();
    let done = wait_state(&program, training.id, "done");
    assert_eq!((&done["starts"], training.starts(0).len()), (&1.into(), 1));
    wait_state(&program, waiting, "done");
}

#[test]
fn a_job_told_to_stop_by_a_router_that_is_killed_stops() {
    let mut program = lender("notice_s = 2").start();
    let deaf =
        "trap '' TERM USR1; echo up; while [ -d \"$SLUICE_CHECKPOINT_DIR\" ]; do sleep 0.1; done";
    let id = shell(&program, deaf);
    wait_state(&program, id, "running");
    assert_eq!(cancel(&program, id).status, 202);
    assert_eq!(job(&program, id)["state"], "noticed");
    program.signal(Signal::KILL);
    program.wait_end();
    let config = program.folder().path().join("sluice.toml");
    let mut program = program.again(&["up", "--config", config.to_str().unwrap()]);
    program.wait_ready();
    let ended = wait_state(&program, id, "cancelled");
    assert_eq!(ended["reason"], "cancelled by request");
    assert_eq!(cancel(&program, id).status, 200, "it has ended");
    let refused = post(&program, &serde_json::json!({"argv": ["/bin/ls"]}), &[]);
    assert_eq!(refused.status, 403);
}

//! Training jobs on idle slices: they run, give way to inference, and go on.

use rustix::process::Signal;

use crate::{
    program::{Program, sluice},
    split::Split,
    training::{Counting, GPU, STEPS, cancel, job, lender, post, shell, states, wait_state},
    wait::eventually,
};

/// Has the model have `least` replicas from now on.
#[track_caller]
fn want(program: &Program, text: &str, least: u32) {
    program.rewrite(&text.replace("min = 1", &format!("min = {least}")));
    let reply = program.reload();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[track_caller]
fn wait_ready(program: &Program, replicas: u64) {
    eventually("the replicas are ready", || {
        (program.state("m")["replicas"]["ready"] == replicas).then_some(())
    });
}

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
    let submitted = job(&[
        "submit",
        "--name",
        "hello",
        "--idempotency-key",
        "one",
        "--",
        "/bin/sh",
        "-c",
        line,
    ]);
    assert_eq!((submitted.0, submitted.1.as_str()), (Some(0), "1\n"), "{}", submitted.2);
    let (code, log, why) = job(&["logs", "-f", "1"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(log.starts_with("on MIG-") && log.ends_with("rank 0 of 1\n"), "{log:?}");
    let again = job(&[
        "submit",
        "--name",
        "hello",
        "--idempotency-key",
        "one",
        "--",
        "/bin/sh",
        "-c",
        line,
    ]);
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
fn inference_takes_a_slice_back_and_the_job_goes_on_from_its_checkpoint() {
    let setup = lender("notice_s = 20");
    let text = setup.text();
    let program = setup.start();
    let run = program.folder().path().join("state/run");
    let training = Counting::submit(&program, 1, &run);
    training.wait_half(&program);
    // Two slices are left for three replicas.
    want(&program, &text, 3);
    wait_ready(&program, 3);
    let left = job(&program, training.id);
    assert_eq!(left["state"], "preempted", "{left:#}");
    assert!(!training.is_alive(0), "its slice serves");
    assert!(states(&left).contains(&"noticed".to_owned()), "{left:#}");
    let lost = left["lost_gpu_s"].as_f64().unwrap();
    assert!(lost < 20.0 * 2.0 / 7.0, "{lost} GPU-seconds are more than the notice");
    want(&program, &text, 1);
    wait_state(&program, training.id, "running");
    training.go();
    let done = wait_state(&program, training.id, "done");
    assert_eq!(done["progress"]["step"], STEPS);
    assert_eq!(training.starts(0), [(0, 1), (STEPS / 2, 1)]);
}

#[test]
fn a_gang_starts_whole_is_preempted_whole_and_resumes_whole() {
    let setup = lender("notice_s = 20");
    let text = setup.text();
    let program = setup.start();
    let run = program.folder().path().join("state/run");
    let training = Counting::submit(&program, 2, &run);
    training.wait_half(&program);
    want(&program, &text, 2);
    wait_ready(&program, 2);
    let left = job(&program, training.id);
    assert_eq!((&left["state"], left["seats"].as_array().unwrap().len()), (&"preempted".into(), 0));
    assert!(![0, 1].into_iter().any(|rank| training.is_alive(rank)), "half of it is left");
    want(&program, &text, 1);
    training.go();
    wait_state(&program, training.id, "done");
    for rank in [0, 1] {
        let starts = training.starts(rank);
        assert_eq!(starts.iter().map(|(_, width)| *width).collect::<Vec<_>>(), [2, 2]);
        assert!(starts[1].0 > 0, "rank {rank} began anew: {starts:?}");
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
    assert_eq!([0, 1].map(|rank| training.pid(rank)), before, "it was started anew");
    assert_eq!(job(&program, waiting)["state"], "queued");
    training.go();
    let done = wait_state(&program, training.id, "done");
    assert_eq!((&done["starts"], training.starts(0).len()), (&1.into(), 1));
    wait_state(&program, waiting, "done");
}

#[test]
fn router_worker_and_job_killed_in_turn_lose_nothing_and_run_nothing_twice() {
    let loans = "[loans]\nallow = [\"/bin/sh\"]\n";
    let setup = crate::setup::Setup::new()
        .router("state_dir = \"state\"")
        .sleeper("m", 5, "slo_ms = 20000\nreplicas = { min = 1, max = 1 }")
        .tables(loans);
    let gpus = format!("{loans}{GPU}");
    let split = Split::start(setup, &gpus);
    let run = split.worker.folder().path().join("run");
    let training = Counting::submit(&split.router, 1, &run);
    training.wait_half(&split.router);
    let first = training.pid(0);

    let split = split.replace_router();
    wait_state(&split.router, training.id, "running");
    assert_eq!((training.pid(0), training.starts(0).len()), (first, 1), "the router was killed");

    let split = split.replace_worker(&gpus);
    eventually("the new worker has the rank", || {
        let slices = split.router.slices();
        slices.iter().any(|slice| slice["rank"]["state"] == "running").then_some(())
    });
    assert_eq!((training.pid(0), training.starts(0).len()), (first, 1), "the worker was killed");

    crate::process::signal(first, Signal::KILL);
    eventually("it was started again", || (training.starts(0).len() == 2).then_some(()));
    let again = wait_state(&split.router, training.id, "running");
    assert_eq!(again["failures"][0], 1, "{again:#}");
    let killed = "rank 0 was killed by signal 9";
    let told = again["history"].as_array().unwrap();
    assert!(told.iter().any(|step| step["reason"].as_str().unwrap().starts_with(killed)));

    training.go();
    let done = wait_state(&split.router, training.id, "done");
    assert_eq!((&done["starts"], training.starts(0).len()), (&2.into(), 2));
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

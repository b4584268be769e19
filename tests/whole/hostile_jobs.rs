//! Jobs that must not be, and jobs that misbehave: each has an outcome, and inference feels neither.

use std::fs;

use serde_json::{Value, json};

use crate::{
    client::{Body, count_from},
    process,
    program::Program,
    training::{cancel, job, lender, post, shell, wait_state},
    wait::eventually,
};

/// A line that stays until its job's folder is gone.
const STAY: &str = "while [ -d \"$SLUICE_CHECKPOINT_DIR\" ]; do sleep 0.1; done";

fn folder(program: &Program, id: u64) -> std::path::PathBuf {
    program.folder().path().join(format!("state/run/jobs/{id}"))
}

/// Inference goes on as if nothing were beside it.
#[track_caller]
fn serves(program: &Program) {
    assert_eq!(program.client().infer("m", &Body::row()).numbers(), count_from(1.0, 1));
}

#[test]
fn job_that_can_never_run_is_rejected_with_the_numbers() {
    let setup = lender("tenant_slices = 2\ntenant_jobs = 2\nlease_s = 3600").tables(
        "[[tenant]]\nname = \"research\"\nkey_sha256 = \
         \"5ec1a7e3a1e6a5b0a1f6d3a8c0b1d2e3f405162738495a6b7c8d9eafb0c1d2e3\"",
    );
    let program = setup.start();
    let with = |more: Value| {
        let mut job = json!({"argv": ["/bin/sh", "-c", STAY], "tenant": "research"});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    for (job, status, reason, words) in [
        (with(json!({"argv": ["/bin/cat"]})), 403, "not_allowed", "allowed are /bin/sh"),
        (with(json!({"argv": []})), 400, "invalid", "argv is empty"),
        (with(json!({"tenant": "nobody"})), 400, "unknown_tenant", "give one of research"),
        (with(json!({"slices": 4})), 422, "too_many_slices", "has 3"),
        (with(json!({"slices": 3})), 429, "quota", "tenant is 2"),
        (with(json!({"profile": "7g.80gb"})), 422, "too_many_slices", "has 0"),
        (with(json!({"profile": "9g.9gb"})), 400, "invalid", "give one such as"),
        (with(json!({"memory_mib": 99_999})), 422, "memory", "99999 MiB on each slice"),
        (with(json!({"deadline_s": 60})), 422, "deadline", "no duration"),
        (with(json!({"deadline_s": 60, "takes_s": 90})), 422, "deadline", "takes 90 s at best"),
        (with(json!({"environment": {"LD_PRELOAD": "x"}})), 400, "invalid", "not a job's to set"),
        (with(json!({"colour": "red"})), 400, "invalid", "unknown field `colour`"),
        (with(json!({"slices": "2..1"})), 400, "invalid", "the least first"),
    ] {
        let reply = post(&program, &job, &[]);
        assert_eq!(reply.status, status, "{job}: {}", reply.text());
        assert_eq!(reply.json()["reason"], reason, "{job}");
        assert!(reply.text().contains(words), "{job}: {}", reply.text());
    }
    let kept = post(&program, &with(json!({"deadline_s": 600, "takes_s": 60})), &[]);
    assert_eq!(kept.status, 201, "{}", kept.text());
    let (deadline, start_by) = (&kept.json()["deadline_ms"], &kept.json()["start_by_ms"]);
    assert_eq!(deadline.as_u64().unwrap() - start_by.as_u64().unwrap(), 60_000);
    assert_eq!(post(&program, &with(json!({})), &[]).status, 201);
    let reply = post(&program, &with(json!({})), &[]);
    assert_eq!((reply.status, &reply.json()["reason"]), (429, &json!("quota")));
    assert!(reply.text().contains("research has 2 jobs that have not ended; at most 2 may be"));
}

#[test]
fn a_job_that_ignores_every_signal_is_killed_after_its_notice() {
    let program = lender("notice_s = 1").start();
    let id = shell(&program, &format!("trap '' TERM USR1 INT; echo $$ > pid; {STAY}"));
    wait_state(&program, id, "running");
    let path = folder(&program, id).join("work/pid");
    let pid = eventually("it is up", || fs::read_to_string(&path).ok()?.trim().parse().ok());
    cancel(&program, id);
    wait_state(&program, id, "cancelled");
    assert!(!process::is_alive(pid));
    serves(&program);
}

#[test]
fn what_a_job_leaves_behind_is_ended_with_it() {
    let program = lender("").start();
    let id = shell(
        &program,
        &format!("setsid sh -c 'echo $$ > pid; {STAY}' & while [ ! -s pid ]; do sleep 0.01; done"),
    );
    wait_state(&program, id, "done");
    let pid = fs::read_to_string(folder(&program, id).join("work/pid")).unwrap();
    assert!(!process::is_alive(pid.trim().parse().unwrap()), "it left its group and lives on");
}

#[test]
fn a_job_that_prints_without_end_fills_no_disk() {
    let program = lender("notice_s = 1\nlog_mib = 1").start();
    let id = shell(&program, "yes and so on");
    let logs = folder(&program, id).join("rank-0");
    let kept = || -> u64 {
        let files = fs::read_dir(&logs).into_iter().flatten().flatten();
        let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("log-"));
        logs.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    };
    let page =
        |from: u64| program.ask_admin(&format!("/admin/v1/jobs/{id}/logs?from={from}")).json();
    eventually("more was printed than is kept", || {
        assert!(kept() <= 1_200_000, "{} bytes are kept", kept());
        (page(0)["from"].as_u64().unwrap() > 0).then_some(())
    });
    serves(&program);
    cancel(&program, id);
    wait_state(&program, id, "cancelled");
}

#[test]
fn a_job_that_fills_its_folder_fails_and_is_not_tried_again() {
    let program = lender("disk_mib = 1").start();
    let line = format!("head -c 4000000 /dev/zero > large; {STAY}");
    let argv = json!({"argv": ["/bin/sh", "-c", line], "retries": 5});
    let id = post(&program, &argv, &[]).json()["id"].as_u64().unwrap();
    let failed = wait_state(&program, id, "failed");
    let reason = failed["reason"].as_str().unwrap();
    assert!(reason.contains("its folder holds 3 MiB, 1 are allowed"), "{reason}");
    assert_eq!(failed["starts"], 1);
}

#[test]
fn exit_codes_are_told_and_one_that_ends_at_once_is_done() {
    let program = lender("").start();
    let done = shell(&program, "exit 0");
    wait_state(&program, done, "done");
    let failed = shell(&program, "echo it broke; exit 3");
    assert_eq!(wait_state(&program, failed, "failed")["reason"], "rank 0 exited with 3");
    let log = program.ask_admin(&format!("/admin/v1/jobs/{failed}/logs")).json();
    assert_eq!((&log["text"], &log["over"]), (&json!("it broke\n"), &json!(true)));
    let silent = shell(&program, STAY);
    let runs = wait_state(&program, silent, "running");
    assert_eq!(runs["progress"], Value::Null, "it never says how far it is, and runs");
    assert_eq!(job(&program, silent)["state"], "running");
    serves(&program);
}

//! Loans that grow, and loans that are throttled.

use rustix::process::Signal;
use serde_json::json;

use crate::{
    client::Body,
    process,
    program::Program,
    setup::Setup,
    training::{Counting, GPU, STEPS, job, lender, wait_ready, wait_state, want},
    wait::eventually,
};

/// Longer than any test.
const LONG: &str = "notice_s = 600\nlease_s = 3600";

/// Asks more of the model than it can do, and waits for no good answer.
fn press(program: &Program) {
    let mut clients: Vec<_> = (0..30).map(|_| program.client()).collect();
    clients.iter_mut().for_each(|client| client.send_infer("m", &Body::row()));
    for client in &mut clients {
        assert!([200, 503, 504].contains(&client.receive().status));
    }
}

/// A program that lends two slices beside a model with these `settings`, which takes `latency_ms`.
fn beside(latency_ms: u32, settings: &str, loans: &str) -> Program {
    Setup::new()
        .router("drain_delay_s = 0\nstate_dir = \"state\"")
        .sleeper("m", latency_ms, &format!("memory_mib = 15000\nmax_batch = 1\n{settings}"))
        .tables(&format!("[loans]\nallow = [\"/bin/sh\"]\n{loans}"))
        .tables(GPU)
        .start()
}

#[test]
fn job_grows_into_free_slices_from_its_checkpoint() {
    let program = lender("lease_s = 3\nnotice_s = 3").start();
    want(&program, 2);
    wait_ready(&program, 2);
    let run = program.folder().path().join("state/run");
    // Of one that says it ends soon, stopping would cost more than is gained.
    let asked = json!({"slices": "1..2", "environment": {"TOTAL": "null"}});
    let training = Counting::submit_with(&program, asked, &run);
    training.wait_half(&program);
    assert_eq!(job(&program, training.id)["seats"].as_array().unwrap().len(), 1);
    process::signal(training.pid(0), Signal::USR1);
    eventually("it has a checkpoint", || {
        (job(&program, training.id)["progress"]["checkpoint"] == STEPS / 2).then_some(())
    });
    want(&program, 1);
    eventually("it runs on both", || {
        (training.starts(0) == [(0, 1), (STEPS / 2, 2)] && training.starts(1) == [(0, 2)])
            .then_some(())
    });
    let grown = wait_state(&program, training.id, "running");
    let told = grown["history"].as_array().unwrap();
    assert!(told.iter().any(|step| step["reason"] == "grows to 2 slices"), "{grown:#}");
    training.go();
    let done = wait_state(&program, training.id, "done");
    assert_eq!(done["failures"][0], 0);
}

#[test]
fn job_beside_a_missing_model_is_paused_then_stopped() {
    let program = beside(50, "slo_ms = 120\nreplicas = { min = 1, max = 1 }", LONG);
    let run = program.folder().path().join("state/run");
    let training = Counting::submit(&program, 1, &run);
    training.wait_half(&program);
    let pid = training.pid(0);
    eventually("it is paused", || {
        press(&program);
        process::is_paused(pid).then_some(())
    });
    eventually("it gives way", || {
        press(&program);
        (job(&program, training.id)["state"] == "preempted").then_some(())
    });
    assert!(!process::is_alive(pid));
    assert_eq!(training.starts(0), [(0, 1)], "it was back at once");
}

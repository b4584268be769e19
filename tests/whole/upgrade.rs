//! State that the version before wrote is read by this one.
//!
//! `state-0.1` is the state directory of a real run of that version, killed after it had measured a
//! model, run a job, queued another, and been told to pin a replica and to drain its only worker.
//! `state-fbffd85` is that of the revision before this version, killed with a job at work.

use std::{fs, path::Path};

use serde_json::json;

use crate::{
    kept::measured,
    program::ROOT,
    setup::Setup,
    training::{GPU, job, post, states},
    wait::eventually,
};

/// Puts the files in the state directory. The path of a model is part of what was learned of it, so
/// it is given the one it has here.
fn state_of_before(setup: &Setup, folder: &str) {
    let (then, here) = ("onnx 1 ", format!("onnx 1 {}/", setup.folder().path().display()));
    let state = setup.folder().path().join("state");
    fs::create_dir(&state).unwrap();
    for name in ["state.log", "orders.log", "learned.log"] {
        let path = Path::new(ROOT).join("tests/whole").join(folder).join(name);
        let text = fs::read_to_string(path).unwrap();
        let moved = text.lines().map(|line| {
            let record = line[9..].replace(then, &here);
            format!("{:08x} {record}\n", crc32fast::hash(record.as_bytes()))
        });
        fs::write(state.join(name), moved.collect::<String>()).unwrap();
    }
}

#[test]
fn state_written_by_version_0_1_is_read() {
    let settings = "slo_ms = 20000\nmemory_mib = 15000\nreplicas = { min = 1, max = 1 }";
    let setup = Setup::new()
        .router("drain_delay_s = 0\nstate_dir = \"state\"")
        .digits("slo_ms = 500\nmax_batch = 4")
        .sleeper("m", 5, settings)
        .tables("[loans]\nallow = [\"/bin/sh\"]")
        .tables(GPU);
    state_of_before(&setup, "state-0.1");
    let mut program = setup.launch();
    program.wait_listening();

    let done = job(&program, 1);
    assert_eq!((&done["name"], &done["state"]), (&json!("short"), &json!("done")));
    assert_eq!(states(&done), ["queued", "starting", "running", "done"]);
    assert_eq!(done["starts"], 1);
    let waits = job(&program, 2);
    assert_eq!(
        (&waits["state"], &waits["slices_wanted"]),
        (&json!("queued"), &json!([3, 3])),
        "{waits:#}"
    );
    let again = json!({"name": "short", "argv": ["/bin/sh", "-c", "exit 0"], "retries": 0});
    let again = post(&program, &again, &[("idempotency-key", "first")]);
    assert_eq!((again.status, &again.json()["id"]), (200, &json!(1)), "it is the same job");

    let drain = eventually("the worker is there", || {
        program.workers().first().map(|worker| worker["drain"].clone())
    });
    assert_eq!(drain["by"], "ada");
    let pins = program.ask_admin("/admin/v1/state").json()["pins"].clone();
    assert_eq!((&pins[0]["model"], &pins[0]["by"]), (&json!("m"), &json!("ada")), "{pins:#}");
    assert_eq!((&pins[0]["worker"], &pins[0]["position"]), (&json!("local"), &json!("2g.20gb@4")));

    // The worker is drained, so that no replica of digits is there to be measured.
    let known = eventually("the planner knows digits", || {
        measured(&program).filter(|known| !known.is_empty())
    });
    assert_eq!(known[0]["kind"], "A100-80GB", "{known:#?}");
}

#[test]
fn state_written_by_the_revision_before_is_read() {
    let setup = Setup::new()
        .router("drain_delay_s = 0\nstate_dir = \"state\"")
        .digits("slo_ms = 500\nmax_batch = 4")
        .tables("[loans]\nallow = [\"/bin/sh\"]")
        .tables(GPU);
    state_of_before(&setup, "state-fbffd85");
    let mut program = setup.launch();
    program.wait_listening();
    let done = job(&program, 1);
    assert_eq!((&done["name"], &done["state"]), (&json!("short"), &json!("done")));
    assert_eq!(states(&done), ["queued", "starting", "running", "done"]);
    // Its worker did not come back, so its loan ends and it starts again.
    let long = job(&program, 2);
    assert_eq!((&long["name"], &long["starts"]), (&json!("long"), &json!(1)), "{long:#}");
    let known = eventually("the planner knows digits", || {
        measured(&program).filter(|known| !known.is_empty())
    });
    assert_eq!(known[0]["kind"], "A100-80GB", "{known:#?}");
}

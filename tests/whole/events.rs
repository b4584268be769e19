//! What `sluice events` tells of what changed, and why.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    client::Client,
    program::{Program, sluice},
    setup::Setup,
    wait::eventually,
};

fn start() -> Program {
    Setup::new().sleeper("slow", 5, "slo_ms = 1000\nmax_batch = 8").gpus(1).start()
}

fn events(program: &Program) -> Vec<Value> {
    let url = format!("http://{}", program.admin());
    let output = sluice(&["events", "--url", &url, "--format", "json"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The first event of a kind, once there is one.
#[track_caller]
fn event(program: &Program, kind: &str) -> Value {
    eventually(kind, || events(program).into_iter().find(|event| event["kind"] == kind))
}

#[test]
fn a_start_is_told_in_its_steps_and_with_reasons() {
    let program = start();
    let ready = event(&program, "router_ready");
    let told = events(&program);
    let seq = |kind: &str| {
        let found = told.iter().find(|event| event["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {told:?}"))["seq"].as_u64().unwrap()
    };
    assert!(seq("worker_joined") < seq("replica_ready"), "{told:?}");
    assert!(seq("replica_ready") <= seq("model_ready"), "{told:?}");
    assert!(seq("model_ready") < ready["seq"].as_u64().unwrap(), "{told:?}");
    let replica = event(&program, "replica_ready");
    assert_eq!(replica["subject"], "slow");
    assert!(replica["what"].as_str().unwrap().starts_with("slow is ready on gpu0:"), "{replica}");
    assert!(replica["why"].as_str().is_some_and(|why| !why.is_empty()), "{replica}");
    let output = sluice(&["events", "--url", &format!("http://{}", program.admin())]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("  model_ready        slow is ready\n"), "{text}");
}

#[test]
fn events_that_follow_come_as_they_happen() {
    let program = start();
    let url = format!("http://{}", program.admin());
    let mut following = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["events", "--follow", "--url", &url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("router_ready")), "it has what was before");
    let asked = json!({"model": "slow", "slo_ms": 500, "apply": true}).to_string();
    let mut admin = Client::connect(program.admin());
    assert_eq!(admin.post("/admin/v1/objective", &[], asked.as_bytes()).status, 200);
    let told = lines.find(|line| line.contains("override_objective")).unwrap();
    assert!(told.ends_with("slow has another objective: slo_ms = 500: by an operator"), "{told}");
    assert_eq!(program.reload().status, 200);
    let told = lines.find(|line| line.contains("config_reloaded")).unwrap();
    assert!(told.ends_with("the configuration was reloaded: model.slow.slo_ms"), "{told}");
    program.rewrite("[router]\nlisten = 3\n");
    assert_eq!(program.reload().status, 422);
    let told = lines.find(|line| line.contains("config_rejected")).unwrap();
    assert!(told.contains("sluice.toml:2:10: "), "{told}");
    following.kill().unwrap();
    following.wait().unwrap();
}

#[test]
fn events_after_a_number_are_those_that_came_since() {
    let program = start();
    let all = event(&program, "router_ready")["seq"].as_u64().unwrap();
    assert_eq!(program.reload().status, 200);
    let page = program.ask_admin(&format!("/admin/v1/events/recent?after={all}")).json();
    let kinds: Vec<_> = page["events"].as_array().unwrap().iter().map(|one| &one["kind"]).collect();
    assert!(kinds.contains(&&json!("config_reloaded")), "{page}");
    assert!(!kinds.contains(&&json!("router_ready")), "{page}");
    assert!(page["started_ms"].as_u64() > Some(1_700_000_000_000), "{page}");
    let wrong = program.ask_admin("/admin/v1/events/recent?after=x");
    assert_eq!((wrong.status, wrong.reason().as_str()), (400, "invalid"));
}

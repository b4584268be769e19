//! What a person at a terminal, or a script, gets from `sluice simulate`.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    client::Body,
    folder::Folder,
    program::{Program, ROOT, sluice},
    setup::Setup,
    wait::eventually,
};

fn scenario(name: &str) -> String {
    let path = Path::new(ROOT).join("loadtest/scenarios/sim").join(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_kept_objective_exits_0_and_a_missed_one_3() {
    let kept = sluice(&["simulate", &scenario("two-gpus.toml"), "--scale", "0.5"]);
    assert_eq!(kept.status.code(), Some(0), "{kept:?}");
    assert!(String::from_utf8(kept.stdout).unwrap().starts_with("two-gpus: 55.0 s by requests"));
    let missed = sluice(&["simulate", &scenario("overload.toml"), "--scale", "3"]);
    assert_eq!(missed.status.code(), Some(3), "{missed:?}");
}

#[test]
fn a_contest_is_json_for_scripts_and_a_page_for_people() {
    let folder = Folder::new();
    let page = folder.path().join("report.html");
    let file = scenario("overload.toml");
    let output = sluice(&[
        "simulate",
        &file,
        "--compare",
        "batching=slo,timeout",
        "--seeds",
        "2",
        "--format",
        "json",
        "--html",
        page.to_str().unwrap(),
    ]);
    let contest: Value = serde_json::from_slice(&output.stdout).unwrap();
    let entries = contest["entries"].as_array().unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry["value"].as_str().unwrap()).collect();
    assert_eq!(names, ["slo", "timeout"]);
    let runs = entries[0]["runs"].as_array().unwrap();
    let seeds: Vec<&Value> = runs.iter().map(|run| &run["seed"]).collect();
    assert_eq!(seeds, [1, 2]);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("overload: batching compared"));
    assert!(!page.contains("<script") && !page.contains("http"), "it needs nothing else");
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_exits_78() {
    let folder = Folder::new();
    folder.write("s.toml", "about = \"x.\"\nduration_s = 1\nspeed = 3\n");
    let path = folder.path().join("s.toml");
    let output = sluice(&["simulate", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(78));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("s.toml:3:1: unknown field `speed`"), "{told}");
    let output = sluice(&["simulate", &scenario("overload.toml"), "--compare", "batching=quick"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A scenario of three GPUs and one model, as fast as the live `steady`.
fn scenario_with(program: &Program, model: &str) -> String {
    let text = format!(
        "about = \"What if.\"\nduration_s = 20\n[[gpu]]\nkind = \"A100-80GB\"\ncount = 3\n\
         [[model]]\nname = \"{model}\"\nprofile_csv = \"steady.csv\"\nslo_ms = 100\n"
    );
    let path = program.folder().write(&format!("{model}.toml"), text);
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_live_routers_state_is_a_start() {
    let program = Setup::new()
        .sleeper("steady", 300, "slo_ms = 20000\nmax_batch = 1\nreplicas = { min = 2, max = 2 }")
        .tables("[[worker]]\ngpu = \"simulated:A100-80GB\"")
        .tables("geometry = [\"3g.40gb@0\", \"3g.40gb@4\"]")
        .start();
    let mut clients: Vec<_> = (0..12).map(|_| program.client()).collect();
    clients.iter_mut().for_each(|client| client.send_infer("steady", &Body::row()));
    let state = eventually("some wait", || {
        let state = program.ask_admin("/admin/v1/state");
        let waiting = state.json()["models"][0]["dispatch"]["waiting"].as_u64();
        (waiting > Some(0)).then(|| state.text())
    });
    let state = program.folder().write("state.json", state);
    let state = state.to_str().unwrap();
    let same = scenario_with(&program, "steady");
    let output = sluice(&["simulate", &same, "--from-state", state, "--format", "json"]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let model = &summary["models"][0];
    assert_eq!([&summary["gpus"], &summary["replicas"], &model["replicas"]], [1, 2, 2]);
    assert_eq!(model["slo_ms"], 20_000.0, "the router's objective, not the scenario's");
    assert!(model["ends"]["offered"].as_u64() > Some(0), "nobody waits: {summary}");

    let other = scenario_with(&program, "other");
    let output = sluice(&["simulate", &other, "--from-state", state]);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("no [[model]] \"steady\", which the router serves"), "{told}");
}

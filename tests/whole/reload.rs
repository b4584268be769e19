//! A new configuration in a running program: whole or not at all.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    client::{Body, count_from},
    program::Program,
    setup::Setup,
    wait::eventually,
};

fn setup() -> Setup {
    Setup::new().sleeper("slow", 5, "slo_ms = 1000\nmax_batch = 8").gpus(1)
}

/// The program and the text it runs, which a test changes by replacing.
fn start() -> (Program, String) {
    let setup = setup();
    let text = setup.text();
    (setup.start(), text)
}

fn slo_ms(program: &Program) -> Value {
    program.state("slow")["slo_ms"].clone()
}

/// The state but for what changes by itself.
fn settings(program: &Program) -> Value {
    let mut state = program.state("slow");
    state["dispatch"] = Value::Null;
    state["recent"] = Value::Null;
    state["latency"] = Value::Null;
    state
}

#[test]
fn sighup_applies_a_new_objective() {
    let (program, text) = start();
    assert_eq!(slo_ms(&program), 1000.0);
    program.rewrite(&text.replace("slo_ms = 1000", "slo_ms = 750"));
    program.signal(Signal::HUP);
    eventually("the new objective is in force", || (slo_ms(&program) == 750.0).then_some(()));
    assert_eq!(program.client().infer("slow", &Body::row()).status, 200);
    assert_eq!(program.executors().len(), 1);
    assert_eq!(program.slices()[0]["lanes"][0]["restarts"], 0, "a reload is no restart");
}

#[test]
fn reload_by_post_reports_exactly_what_changed() {
    let (program, text) = start();
    let same = program.reload();
    assert_eq!((same.status, same.json()), (200, json!({"changes": []})));
    let changed = text.replace("slo_ms = 1000", "slo_ms = 250").replace("batch = 8", "batch = 4");
    program.rewrite(&changed);
    let reply = program.reload();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let changes = reply.json()["changes"].as_array().unwrap().clone();
    let change = |path: &str, old: &str, new: &str| json!({"path": format!("model.slow.{path}"), "old": old, "new": new, "effect": "live"});
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert!(changes.contains(&change("slo_ms", "1000", "250")), "{changes:?}");
    assert!(changes.contains(&change("max_batch", "8", "4")), "{changes:?}");
    assert_eq!(slo_ms(&program), 250.0);
    let five = program.client().infer("slow", &Body::json(&count_from(1.0, 5)));
    assert_eq!(five.status, 400, "{}", five.text());
    assert!(five.text().contains("at most 4"), "{}", five.text());
    assert_eq!(program.client().infer("slow", &Body::json(&count_from(1.0, 4))).status, 200);
    assert_eq!(program.metrics().value("sluice_config_last_reload_successful"), 1.0);
}

#[test]
fn invalid_file_changes_nothing_and_lists_its_problems() {
    let (program, text) = start();
    let before = settings(&program);
    let broken = text.replace("slo_ms = 1000", "slo_ms = 750\nmax_bach = 3");
    let broken = broken.replace("max_batch = 8", "max_batch = \"many\"");
    program.rewrite(&broken);
    let reply = program.reload();
    assert_eq!((reply.status, reply.reason().as_str()), (422, "invalid"), "{}", reply.text());
    let problems = reply.json()["problems"].clone();
    let place = |key: &str, value: &str| {
        let (index, line) =
            broken.lines().enumerate().find(|(_, line)| line.starts_with(key)).unwrap();
        let column = line.find(value).unwrap() + 1;
        format!(
            "{}:{}:{column}: ",
            program.folder().path().join("sluice.toml").display(),
            index + 1
        )
    };
    for wanted in [place("max_bach", "max_bach"), place("max_batch", "\"many\"")] {
        let told = |problem: &Value| problem.as_str().unwrap().starts_with(&wanted);
        assert!(problems.as_array().unwrap().iter().any(told), "{wanted} is not in {problems}");
    }
    assert_eq!(problems.as_array().unwrap().len(), 2, "{problems}");
    assert_eq!(settings(&program), before);
    assert_eq!(program.metrics().value("sluice_config_last_reload_successful"), 0.0);
    assert_eq!(program.client().infer("slow", &Body::row()).status, 200);

    program.rewrite(&text.replace("slo_ms = 1000", "slo_ms = 750"));
    assert_eq!(program.reload().status, 200);
    assert_eq!(slo_ms(&program), 750.0);
    assert_eq!(program.metrics().value("sluice_config_last_reload_successful"), 1.0);
}

#[test]
fn a_broken_file_changes_nothing_on_a_hangup_either() {
    let (program, text) = start();
    let before = settings(&program);
    program.rewrite(&text.replace("slo_ms = 1000", "slo_ms = \"fast\""));
    program.signal(Signal::HUP);
    eventually("the refusal is logged", || {
        program.log().contains("the old one stays").then_some(())
    });
    assert_eq!(settings(&program), before);
    assert_eq!(program.client().infer("slow", &Body::row()).status, 200);
}

#[test]
fn reload_that_needs_a_restart_is_rejected_whole() {
    let (program, text) = start();
    let before = settings(&program);
    let wants: [(&str, String); 2] = [
        ("router.state_dir", text.replace("[[model]]", "state_dir = \"kept\"\n[[model]]")),
        ("worker", text.clone() + "[[worker]]\ngpu = \"simulated:A100-80GB\"\n"),
    ];
    for (path, changed) in wants {
        program.rewrite(&changed.replace("slo_ms = 1000", "slo_ms = 750"));
        let reply = program.reload();
        assert_eq!((reply.status, reply.reason().as_str()), (409, "conflict"), "{}", reply.text());
        assert!(reply.text().contains(path), "{path} is not in {}", reply.text());
        assert_eq!(settings(&program), before, "{path}: half of it is in force");
    }
    assert_eq!(program.client().infer("slow", &Body::row()).status, 200);
}

#[test]
fn the_demo_has_no_file_to_read_again_and_says_so() {
    let program = Program::demo();
    let reply = program.reload();
    assert_eq!((reply.status, reply.reason().as_str()), (409, "conflict"), "{}", reply.text());
    program.signal(Signal::HUP);
    assert_eq!(program.reload().status, 409, "it survives a hangup");
}

#[test]
fn smaller_batch_limit_loses_no_waiting_request() {
    let setup = Setup::new().sleeper("slow", 300, "slo_ms = 30000\nmax_batch = 8").gpus(1);
    let text = setup.text();
    let program = setup.start();
    let mut clients: Vec<_> = (0..6).map(|_| program.client()).collect();
    clients
        .iter_mut()
        .for_each(|client| client.send_infer("slow", &Body::json(&count_from(1.0, 8))));
    eventually("some wait", || {
        (program.state("slow")["dispatch"]["waiting"].as_u64() >= Some(3)).then_some(())
    });
    program.rewrite(&text.replace("max_batch = 8", "max_batch = 2"));
    assert_eq!(program.reload().status, 200);
    for client in &mut clients {
        let reply = client.receive();
        let told = reply.status == 200 || (reply.status < 500 && !reply.reason().is_empty());
        assert!(told, "{}", reply.text());
    }
    assert_eq!(program.client().infer("slow", &Body::json(&count_from(1.0, 2))).status, 200);
}

/// A server that is a program of ours, and that writes down the environment it was started with.
fn served() -> Setup {
    let inner = Setup::new()
        .router("drain_delay_s = 0")
        .sleeper("slow", 5, "slo_ms = 20000\nmax_batch = 8")
        .gpus(1);
    let (text, slow) = (inner.text(), inner.folder().path().join("slow.csv"));
    let outer = Setup::new();
    outer.replace("inner.toml", text.as_bytes());
    outer.replace("slow.csv", &fs::read(slow).unwrap());
    let folder = outer.folder().path().display().to_string();
    let run = "echo $MARK $0 $$ >> started; exec \"$1\" up --config inner.toml";
    let sluice = env!("CARGO_BIN_EXE_sluice");
    outer
        .tables(&format!(
            "[[model]]\nname = \"slow\"\nengine = \"server\"\nslo_ms = 20000\nmax_batch = 8\n\
             directory = \"{folder}\"\nready_timeout_s = 60\n\
             command = [\"/bin/sh\", \"-c\", {run:?}, \"first\", \"{sluice}\"]\n\
             environment = {{ MARK = \"red\", SLUICE_LISTEN = \"{{host}}:{{port}}\", \
             SLUICE_ADMIN_LISTEN = \"127.0.0.1:0\" }}\nreplicas = {{ min = 1, max = 1 }}\n"
        ))
        .gpus(2)
}

#[test]
fn a_reload_restarts_a_server_model_and_loses_no_request() {
    let setup = served();
    let text = setup.text();
    let program = setup.start();
    let started = program.folder().path().join("started");
    let starts = || -> Vec<(String, PathBuf)> {
        let lines = fs::read_to_string(&started).unwrap();
        let start = |line: &str| {
            let (how, pid) = line.rsplit_once(' ').unwrap();
            (how.to_owned(), Path::new("/proc").join(pid))
        };
        lines.lines().map(start).collect()
    };
    let [(how, first)] = starts().try_into().unwrap();
    assert!(how == "red first" && first.exists(), "{how}");
    let changed = text.replace("MARK = \"red\"", "MARK = \"blue\"");
    let changed = changed.replace("\"first\"", "\"second\"").replace("_s = 60", "_s = 61");
    program.rewrite(&changed);
    let reply = program.reload();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let changes = reply.json()["changes"].as_array().unwrap().clone();
    let paths: Vec<_> = changes.iter().map(|change| change["path"].as_str().unwrap()).collect();
    let keys = ["command", "environment", "ready_timeout_s"].map(|key| format!("model.slow.{key}"));
    assert_eq!(paths, keys);
    assert!(changes.iter().all(|change| change["effect"] == "live"), "{changes:?}");
    let mut client = program.client();
    eventually("the first server is gone", || {
        let reply = client.infer("slow", &Body::row());
        assert_eq!(reply.status, 200, "{}", reply.text());
        (!first.exists()).then_some(())
    });
    assert_eq!(client.infer("slow", &Body::row()).status, 200);
    let [_, (how, second)] = starts().try_into().unwrap();
    assert!(how == "blue second" && second.exists(), "{how}");
}

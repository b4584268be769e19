//! A new process takes over from the running one, and nobody notices.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;

use crate::{
    client::{Body, Client},
    process,
    program::{FREE_PORTS, Program},
    setup::{ONE_GPU, Setup},
    split::Split,
    steady_load::SteadyLoad,
    training::{Counting, lender, wait_state},
    wait::eventually,
};

pub(crate) fn file(program: &Program) -> PathBuf {
    program.folder().path().join("sluice.toml")
}

/// Starts `sluice COMMAND --replace` beside `old`, and waits until it serves and the old one is gone.
#[track_caller]
pub(crate) fn replace(mut old: Program, command: &str) -> Program {
    let config = file(&old);
    let mut new = old.beside(&[command, "--config", config.to_str().unwrap(), "--replace"], &[]);
    new.wait_ready();
    let (code, log) = old.wait_end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("\"ERROR\"") && !log.contains("took control back"), "{log}");
    assert_eq!((new.inference(), new.admin()), (old.inference(), old.admin()));
    new
}

#[track_caller]
fn end(mut program: Program) {
    program.signal(Signal::TERM);
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn handovers_under_load_lose_no_request_and_no_step() {
    let mut program = lender("").start();
    let run = program.folder().path().join("state/run");
    let training = Counting::submit(&program, 1, &run);
    training.wait_half(&program);
    let (executors, rank) = (program.executors(), training.pid(0));
    let load = SteadyLoad::start(program.inference(), 300);
    load.wait_served(50);
    for _ in 0..3 {
        program = replace(program, "up");
        load.wait_served(50);
    }
    let served = load.stop();
    assert!(served > 600, "{served}");
    eventually("the counts of all four processes add up", || {
        let page = program.metrics();
        let observed = page.value("sluice_request_duration_seconds_count{model=\"m\"}") as u64;
        (page.ended("m", "served") == served && observed == served).then_some(())
    });
    assert_eq!(program.executors(), executors, "the executors are the same");
    assert_eq!((training.pid(0), training.starts(0).len()), (rank, 1), "the job never stopped");
    training.go();
    let job = wait_state(&program, training.id, "done");
    assert_eq!(job["starts"], 1, "{job:#}");
    end(program);
    assert!(executors.iter().all(|pid| !process::is_alive(*pid)), "an orderly stop ends them");
}

#[test]
fn a_router_is_replaced_while_its_workers_serve() {
    let setup = Setup::new().router("state_dir = \"state\"").sleeper("m", 5, "slo_ms = 20000");
    let Split { mut router, mut worker, .. } = Split::start(setup, ONE_GPU);
    let load = SteadyLoad::start(router.inference(), 90);
    load.wait_served(10);
    for _ in 0..2 {
        router = replace(router, "router");
        eventually("the worker has joined again", || {
            (router.workers().first()?["state"] == "connected").then_some(())
        });
        load.wait_served(10);
    }
    load.stop();
    for program in [&mut worker, &mut router] {
        program.signal(Signal::TERM);
        program.wait_end();
    }
}

#[test]
fn without_a_state_dir_jobs_and_drains_go_over_too() {
    let setup = Setup::new()
        .router("drain_delay_s = 0")
        .sleeper("m", 5, "slo_ms = 20000\nmemory_mib = 15000\nreplicas = { min = 1, max = 3 }")
        .tables("[loans]\nallow = [\"/bin/sh\"]")
        .tables(crate::training::GPU);
    let program = setup.start();
    let job = json!({"name": "long", "argv": ["/bin/sh", "-c", "sleep 600"]});
    let reply = crate::training::post(&program, &job, &[]);
    assert_eq!(reply.status, 201, "{}", reply.text());
    let id = reply.json()["id"].as_u64().unwrap();
    let before = wait_state(&program, id, "running");
    let executors = program.executors();
    let program = replace(program, "up");
    let after = wait_state(&program, id, "running");
    assert_eq!((&after["name"], &after["history"]), (&before["name"], &before["history"]));
    assert_eq!(after["starts"], 1, "{after:#}");
    assert_eq!(program.executors(), executors);
    assert_eq!(program.client().infer("m", &Body::row()).status, 200);
    end(program);
}

#[test]
fn the_demo_is_replaced_too() {
    let mut old = Program::demo();
    let executors = old.executors();
    let mut new = old.beside(&["up", "--replace"], &FREE_PORTS);
    new.wait_ready();
    let (code, log) = old.wait_end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!((new.inference(), new.executors()), (old.inference(), executors));
    let folder = new.folder().path().to_owned();
    end(new);
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn replace_starts_normally_where_nothing_runs() {
    let setup = Setup::new().router("state_dir = \"state\"\ndrain_delay_s = 0").sleeper(
        "m",
        5,
        "slo_ms = 20000",
    );
    let setup = setup.gpus(1);
    let config = setup.folder().write("sluice.toml", setup.text());
    let folder = setup.into_folder();
    let args = ["up", "--config", config.to_str().unwrap(), "--replace"];
    let mut program = Program::launch(folder, &args, &[]);
    program.wait_ready();
    assert!(program.log().contains("nothing to replace"), "{}", program.log());
    end(program);
}

#[test]
fn idle_connections_are_closed_after_a_last_answer() {
    let setup = Setup::new().router("state_dir = \"state\"\ndrain_delay_s = 0");
    let mut old = setup.sleeper("m", 5, "slo_ms = 20000").gpus(1).start();
    let mut idle = old.client();
    assert_eq!(idle.infer("m", &Body::row()).header("connection"), None);
    let config = file(&old);
    let mut new = old.beside(&["up", "--config", config.to_str().unwrap(), "--replace"], &[]);
    new.wait_ready();
    assert_eq!(Client::connect(new.inference()).infer("m", &Body::row()).status, 200);
    assert!(process::is_alive(old.pid()), "it waits for its client");
    let reply = idle.infer("m", &Body::row());
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert_eq!(old.wait_end().0, Some(0));
    end(new);
}

#[test]
fn batch_limits_go_over() {
    let setup = Setup::new().router("state_dir = \"state\"\ndrain_delay_s = 0");
    let program = setup.sleeper("m", 20, "slo_ms = 20000\nmax_batch = 8").gpus(1).start();
    let limit = |program: &Program| program.state("m")["dispatch"]["limits"][0]["rows"].clone();
    assert_eq!(limit(&program), 1);
    let mut clients: Vec<Client> = (0..24).map(|_| program.client()).collect();
    eventually("the limit has grown", || {
        clients.iter_mut().for_each(|client| client.send_infer("m", &Body::row()));
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().status, 200));
        (limit(&program) == 8).then_some(())
    });
    drop(clients);
    let program = replace(program, "up");
    assert_eq!(limit(&program), 8, "nothing was asked of the new process yet");
    end(program);
}

#[test]
fn sigusr2_starts_the_successor() {
    let setup = Setup::new().router("state_dir = \"state\"\ndrain_delay_s = 0").sleeper(
        "m",
        5,
        "slo_ms = 20000",
    );
    let mut old = setup.gpus(1).start();
    let executors = old.executors();
    old.signal(Signal::USR2);
    let new = eventually("another process serves", || {
        let children = process::children(old.pid());
        children.into_iter().find(|pid| process::words(*pid).contains(&"--replace".to_owned()))
    });
    old.wait_word("ready");
    let (code, log) = old.wait_exit();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(old.executors(), executors, "the new one answers at the same address");
    process::signal(new, Signal::TERM);
    eventually("the new one ends", || (!process::is_alive(new)).then_some(()));
    assert!(executors.iter().all(|pid| !process::is_alive(*pid)));
}

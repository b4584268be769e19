//! Workers taken out for maintenance and replicas put where an operator wants them, while all is served.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    client::{Body, Client, Reply, count_from},
    program::{Program, sluice},
    setup::{Setup, TWO_GPUS},
    split::{self, Split, TOKEN},
    training::{Counting, STEPS, lender, states, wait_state},
    wait::eventually,
};

/// A model of two replicas, which fill a GPU each.
fn pair() -> Setup {
    let settings = "slo_ms = 20000\nmemory_mib = 60000\nreplicas = { min = 2, max = 2 }";
    Setup::new().router("state_dir = \"state\"").sleeper("pair", 10, settings)
}

/// Sends an order; what is said is returned whatever it is.
fn order(program: &Program, method: &str, path: &str, body: &Value) -> Reply {
    let mut client = Client::connect(program.admin());
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.send(method, &format!("/admin/v1/{path}"), &[], body.as_bytes());
    client.receive()
}

fn drain(program: &Program, worker: &str) -> Value {
    let workers = program.workers();
    workers.iter().find(|one| one["name"] == worker).map_or(Value::Null, |one| one["drain"].clone())
}

fn replicas_on(program: &Program, worker: &str) -> usize {
    let workers = program.workers();
    let gpus = workers.iter().filter(|one| one["name"] == worker);
    let gpus = gpus.flat_map(|one| one["gpus"].as_array().unwrap());
    let slices = gpus.flat_map(|gpu| gpu["slices"].as_array().unwrap());
    slices.map(|slice| slice["replicas"].as_array().unwrap().len()).sum()
}

#[track_caller]
fn served(client: &mut Client, model: &str) {
    let reply = client.infer(model, &Body::json(&count_from(1.0, 1)));
    assert_eq!(reply.status, 200, "{}", reply.text());
}

fn document(program: &Program) -> Value {
    program.ask_admin("/admin/v1/state").json()
}

#[test]
fn drain_loses_no_request_and_survives_a_restart() {
    let mut fleet = Split::start(pair(), TWO_GPUS);
    let mut beta = split::worker(&fleet.door, TOKEN, "beta", TWO_GPUS);
    beta.wait_word("worker ");
    eventually("both are there", || (fleet.router.workers().len() == 2).then_some(()));

    let told = eventually("the planner has met both", || {
        let told = order(&fleet.router, "POST", "workers/alpha/drain", &Value::Null).json();
        (told["effect"]["after"]["starts"] == 2).then_some(told)
    });
    assert_eq!((&told["applied"], &told["effect"]["lacking"]), (&json!(false), &json!([])));
    assert_eq!(drain(&fleet.router, "alpha"), Value::Null, "looking changes nothing");

    let mut client = fleet.router.client();
    let asked = json!({"by": "ada", "apply": true});
    let reply = order(&fleet.router, "POST", "workers/alpha/drain", &asked);
    assert_eq!(reply.status, 200, "{}", reply.text());
    eventually("alpha is drained, and all are served meanwhile", || {
        served(&mut client, "pair");
        (drain(&fleet.router, "alpha")["state"] == "drained").then_some(())
    });
    eventually("alpha is empty", || (replicas_on(&fleet.router, "alpha") == 0).then_some(()));
    assert_eq!(replicas_on(&fleet.router, "beta"), 2);
    let metrics = fleet.router.metrics();
    assert_eq!(metrics.value("sluice_worker_drains{state=\"drained\"}"), 1.0);
    assert_eq!(metrics.ended_in_all("pair"), metrics.ended("pair", "served"));
    assert!(fleet.router.log().contains("worker drained by an operator"));

    drop(client);
    fleet = fleet.replace_router();
    fleet.router.wait_word("ready");
    // Ready as soon as beta is there, which has all replicas; alpha may come a moment later.
    eventually("alpha is drained still", || {
        (drain(&fleet.router, "alpha")["by"] == "ada").then_some(())
    });
    assert_eq!(replicas_on(&fleet.router, "alpha"), 0);
    let url = format!("http://{}", fleet.router.admin());
    let returned = sluice(&["return", "alpha", "--url", &url, "--by", "bob"]);
    assert!(returned.status.success(), "{returned:?}");
    assert_eq!(drain(&fleet.router, "alpha"), Value::Null);
    let again = order(&fleet.router, "DELETE", "workers/alpha/drain", &Value::Null);
    assert_eq!((again.status, again.reason().as_str()), (404, "not_ordered"));
    drop(beta);
}

#[test]
fn drain_beyond_capacity_warns_first_and_can_be_applied() {
    let mut program = pair().router("drain_delay_s = 0").gpus(2).start();
    let run = |program: &Program, args: &[&str]| {
        let url = format!("http://{}", program.admin());
        let output = sluice(&[args, &["--url", &url]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let said = eventually("the planner has decided", || {
        let said = run(&program, &["drain", "local"]);
        said.contains("the rest of the fleet cannot carry the load").then_some(said)
    });
    assert!(said.contains("nothing was changed; add --apply"), "{said}");
    served(&mut program.client(), "pair");
    let said = run(&program, &["drain", "local", "--apply", "--wait", "--by", "ada"]);
    assert!(said.ends_with("local is drained\n"), "{said}");
    let reply = program.client().infer("pair", &Body::row());
    assert_eq!(reply.status, 503, "{}", reply.text());
    let shown = run(&program, &["status"]);
    assert!(shown.contains("worker local, connected, drained by ada"), "{shown}");

    // It stands when the program starts again, which waits for the worker's return.
    program.signal(Signal::TERM);
    program.wait_end();
    let config = program.folder().path().join("sluice.toml");
    let mut program = program.again(&["up", "--config", config.to_str().unwrap()]);
    program.wait_listening();
    eventually("the planner has met it", || {
        (drain(&program, "local")["state"] == "drained").then_some(())
    });
    run(&program, &["return", "local"]);
    program.wait_word("ready");
    eventually("it serves again", || {
        (program.client().infer("pair", &Body::row()).status == 200).then_some(())
    });
}

#[test]
fn a_job_on_a_drained_worker_gets_its_notice_and_goes_on_later() {
    let program = lender("notice_s = 20").start();
    let run = program.folder().path().join("state/run");
    let training = Counting::submit(&program, 1, &run);
    training.wait_half(&program);
    let reply = order(&program, "POST", "workers/local/drain", &json!({"apply": true}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let left = wait_state(&program, training.id, "preempted");
    assert!(states(&left).contains(&"noticed".to_owned()), "{left:#}");
    eventually("nothing holds the worker", || {
        (drain(&program, "local")["state"] == "drained").then_some(())
    });
    assert!(!training.is_alive(0), "its slice is to be free");
    let reply = order(&program, "DELETE", "workers/local/drain", &Value::Null);
    assert_eq!(reply.status, 200, "{}", reply.text());
    wait_state(&program, training.id, "running");
    training.go();
    wait_state(&program, training.id, "done");
    assert_eq!(training.starts(0), [(0, 1), (STEPS / 2, 1)]);
}

#[test]
fn replica_moves_to_a_pinned_slice_without_a_lost_request() {
    let settings = "slo_ms = 20000\nmemory_mib = 2000";
    let setup = Setup::new().router("state_dir = \"state\"").router("drain_delay_s = 0");
    let mut program = setup.sleeper("one", 10, settings).gpus(2).start();
    let here = |program: &Program| {
        let planned = document(program)["plan"]["replicas"][0].clone();
        (planned["gpu"].as_u64().unwrap(), planned["position"].as_str().unwrap().to_owned())
    };
    let (gpu, position) = here(&program);
    let (from, to) = (format!("gpu{gpu}/{position}"), format!("gpu{}/3g.40gb@4", 1 - gpu));
    let url = format!("http://{}", program.admin());
    let asked = ["pin", "one", &to, "--from", &from, "--by", "ada", "--url", &url];
    let looked = sluice(&asked);
    let said = String::from_utf8(looked.stdout).unwrap();
    assert!(said.contains("one is loaded on local gpu"), "{said}");
    assert!(said.contains("pinned by operator ada"), "{said}");
    assert_eq!(document(&program)["pins"], json!([]), "looking changes nothing");
    let done = sluice(&[&asked[..], &["--apply"]].concat());
    assert!(done.status.success(), "{done:?}");

    let mut client = program.client();
    let held = |program: &Program| {
        let pins = document(program)["pins"].clone();
        (pins[0]["state"] == "held" && pins[0]["from"].is_null()).then_some(pins)
    };
    eventually("it is there, and all are served meanwhile", || {
        served(&mut client, "one");
        held(&program)
    });
    let metrics = program.metrics();
    assert_eq!(metrics.ended_in_all("one"), metrics.ended("one", "served"));
    assert_eq!(metrics.value("sluice_placement_pins{state=\"held\"}"), 1.0);
    assert_eq!(here(&program), (1 - gpu, "3g.40gb@4".to_owned()));
    assert_eq!(document(&program)["plan"]["replicas"][0]["why"], "pinned by operator ada");

    drop(client);
    program.signal(Signal::TERM);
    program.wait_end();
    let config = program.folder().path().join("sluice.toml");
    let mut program = program.again(&["up", "--config", config.to_str().unwrap()]);
    program.wait_ready();
    eventually("it is there again", || held(&program));
    assert_eq!(here(&program), (1 - gpu, "3g.40gb@4".to_owned()));
    let url = format!("http://{}", program.admin());
    let shown = String::from_utf8(sluice(&["status", "--url", &url]).stdout).unwrap();
    assert!(
        shown.contains("one is pinned to local gpu") && shown.contains("by ada, held"),
        "{shown}"
    );
    assert!(sluice(&["unpin", "one", &to, "--url", &url]).status.success());
    assert_eq!(document(&program)["pins"], json!([]));
    let again = sluice(&["unpin", "one", &to, "--url", &url]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8(again.stderr).unwrap().contains("is not pinned to local gpu"));
}

#[test]
fn an_order_that_cannot_be_is_refused_with_why() {
    let settings = "slo_ms = 20000\nmemory_mib = 15000";
    let setup = Setup::new().sleeper("a", 10, settings).sleeper("b", 10, settings).gpus(2);
    let program = setup.start();
    let at = |gpu: u32, position: &str| json!({"worker": "local", "gpu": gpu, "position": position, "by": "ada", "apply": true});
    let pinned = eventually("the planner has decided", || {
        let reply = order(&program, "POST", "models/a/pin", &at(1, "2g.20gb@0"));
        (reply.status == 200).then_some(reply.json())
    });
    assert_eq!(pinned["applied"], true);
    let wrong = [
        ("models/none/pin", at(1, "2g.20gb@2"), 404, "no model named"),
        ("models/b/pin", at(7, "2g.20gb@2"), 409, "local has no gpu7"),
        ("models/b/pin", at(1, "9g.90gb@0"), 409, "A100-80GB has no slice 9g.90gb@0"),
        ("models/b/pin", at(1, "1g.10gb@6"), 409, "a replica needs 15000 MiB, the slice has 9851"),
        ("models/b/pin", at(1, "4g.40gb@0"), 409, "a is pinned across it, on 2g.20gb@0"),
        ("models/b/pin", at(1, "2g.20gb@0"), 409, "15000 of its 19968 MiB are pinned to others"),
        ("models/b/pin", json!({"gpu": "first"}), 422, "invalid type"),
        ("models/b/pin", Value::Null, 422, "EOF"),
        ("workers/none/drain", json!({"apply": true}), 404, "no worker named"),
        ("workers/local/drain", json!({"by": "", "apply": true}), 422, "by is to be a name"),
        ("workers/local/drain", json!({"force": true}), 422, "unknown field"),
    ];
    for (path, asked, status, words) in wrong {
        let reply = order(&program, "POST", path, &asked);
        assert_eq!(reply.status, status, "{asked}: {}", reply.text());
        assert!(reply.text().contains(words), "{asked}: {}", reply.text());
    }
    order(&program, "POST", "workers/local/drain", &json!({"apply": true}));
    let reply = order(&program, "POST", "models/b/pin", &at(0, "3g.40gb@4"));
    assert_eq!((reply.status, reply.reason().as_str()), (409, "conflict"));
    assert!(reply.text().contains("is drained"), "{}", reply.text());
    assert_eq!(document(&program)["pins"].as_array().unwrap().len(), 1);
}

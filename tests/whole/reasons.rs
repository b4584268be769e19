//! Why something is not so, in the words that name the limit and the key.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    client::{Body, Client},
    process,
    program::{Program, sluice},
    setup::Setup,
    split,
    wait::eventually,
};

fn error(program: &Program, model: &str) -> (u16, String) {
    let reply = program.client().infer(model, &Body::row());
    let error = if reply.status == 200 { Value::Null } else { reply.json()["error"].clone() };
    (reply.status, error.as_str().unwrap_or_default().to_owned())
}

#[test]
fn without_a_worker_callers_and_operators_are_told_that() {
    let (router, _) = split::router(Setup::new().sleeper("lone", 5, "slo_ms = 500"));
    let why = "no worker is connected; a `sluice worker` joins at join_listen of [router]";
    eventually("the planner has looked", || {
        let told = error(&router, "lone");
        (told == (503, format!("no replica of lone is ready: {why}"))).then_some(())
    });
    let ready = router.ask_admin("/readyz?verbose").text();
    assert!(ready.contains(why), "{ready}");
    assert_eq!(router.state("lone")["reason"], why);
}

#[test]
fn a_silent_executor_is_named_with_what_becomes_of_it() {
    let program = Setup::new()
        .sleeper("lone", 5, "slo_ms = 300\nmax_batch = 1\nreplicas = { min = 1, max = 1 }")
        .gpus(1)
        .start();
    process::signal(program.executors()[0], Signal::STOP);
    let told = eventually("requests say why", || {
        let (status, error) = error(&program, "lone");
        error.contains("does not answer").then_some((status, error))
    });
    let why = "the executor of gpu0:7g@0 does not answer; its worker replaces it after 10 s";
    assert_eq!(told, (503, format!("no replica of lone is ready: {why}")));
    eventually("it is replaced", || (error(&program, "lone").0 == 200).then_some(()));
}

#[test]
fn a_model_at_its_most_replicas_is_told_the_key() {
    let program = Setup::new()
        .sleeper("lone", 20, "slo_ms = 100\nmax_batch = 1\nreplicas = { min = 1, max = 1 }")
        .gpus(2)
        .start();
    // Before the first request nothing is asked for, whatever the replica could serve.
    let mut admin = Client::connect(program.admin());
    let asked = json!({"apply": false}).to_string();
    let drained = admin.post("/admin/v1/workers/local/drain", &[], asked.as_bytes()).json();
    let demand_rps = drained["effect"]["models"][0]["demand_rps"].as_f64().unwrap();
    assert!(demand_rps < 1.0, "{drained}");
    let url = format!("http://{}", program.inference());
    let load = ["load", "--model", "lone", "--rate", "600", "--duration", "3", "--url", &url];
    assert_eq!(sluice(&load).status.code(), Some(3), "one replica cannot keep up");
    let refused = eventually("the planner says what it would need", || {
        let refusals = program.ask_admin("/admin/v1/plan").json()["refusals"].clone();
        refusals[0].as_str().map(str::to_owned)
    });
    assert!(refused.starts_with("lone needs "), "{refused}");
    let bound = " from 1 replica: replicas.max is 1; raise it to allow more";
    assert!(refused.ends_with(bound), "{refused}");
}

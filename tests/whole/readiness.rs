//! When a router is ready, and what one sick model means for the others.

use rustix::process::Signal;

use crate::{
    client::{Body, Client, count_from},
    ha::{Routers, leads},
    process,
    program::Program,
    setup::Setup,
    steady::Steady,
    wait::eventually,
};

fn unload(program: &Program, model: &str) -> u16 {
    order(program, model, "unload").0
}

/// The status and the reason of an order, if it has one.
fn order(program: &Program, model: &str, order: &str) -> (u16, String) {
    let path = format!("/v2/repository/models/{model}/{order}");
    let reply = program.client().post(&path, &[], b"{}");
    let reason = if reply.status == 200 { String::new() } else { reply.reason() };
    (reply.status, reason)
}

fn availability(program: &Program, model: &str) -> String {
    program.state(model)["availability"].as_str().unwrap().to_owned()
}

fn ready_metric(program: &Program, model: &str) -> Option<f64> {
    let series = format!("sluice_model_ready{{model=\"{model}\"}}");
    program
        .metrics()
        .series("sluice_model_ready")
        .find(|(name, _)| *name == series)
        .map(|(_, value)| value)
}

#[test]
fn the_other_model_loses_nothing_while_one_is_sick() {
    let one = "slo_ms = 20000\nreplicas = { min = 1, max = 1 }";
    let program = Setup::new().digits(one).sleeper("sound", 2, one).gpus(2).start();
    let steady = Steady::start(&program, "sound");
    assert_eq!(unload(&program, "digits"), 200);
    eventually("its slice is free", || (program.executors().len() == 1).then_some(()));
    assert_eq!(availability(&program, "digits"), "unloaded");
    assert_eq!(ready_metric(&program, "digits"), None);
    assert_eq!(program.client().get("/v2/models/digits/ready").status, 503);
    assert_eq!(order(&program, "digits", "load").0, 200);
    assert_eq!(program.client().get("/v2/models/digits/ready").status, 200, "a load waits for it");
    assert_eq!(ready_metric(&program, "digits"), Some(1.0));

    let slices = program.slices();
    let sick = slices.iter().find(|slice| slice["replicas"][0]["model"] == "digits").unwrap();
    let pid = sick["lanes"][0]["pid"].as_u64().unwrap().try_into().unwrap();
    process::signal(pid, Signal::STOP);
    eventually("its executor is given up", || {
        (ready_metric(&program, "digits") == Some(0.0)).then_some(())
    });
    let verbose = program.ask_admin("/readyz?verbose").text();
    assert!(verbose.contains("[-]model digits failed: "), "{verbose}");
    assert!(verbose.contains("[+]model sound ok\n") && verbose.ends_with("\nready\n"), "{verbose}");
    process::signal(pid, Signal::CONT);
    eventually("it is back", || (ready_metric(&program, "digits") == Some(1.0)).then_some(()));
    steady.stop();
}

#[test]
fn unload_outlives_a_restart_until_the_load() {
    let setup = Setup::new()
        .sleeper("m", 1, "slo_ms = 20000")
        .sleeper("n", 1, "slo_ms = 20000")
        .gpus(2)
        .router("state_dir = \"state\"\ndrain_delay_s = 0");
    let mut program = setup.start();
    assert_eq!(unload(&program, "m"), 200);
    eventually("the slice is free", || (program.executors().len() == 1).then_some(()));
    program.signal(Signal::KILL);
    program.wait_end();
    let file = program.folder().path().join("sluice.toml");
    let mut program = program.again(&["up", "--config", file.to_str().unwrap()]);
    program.wait_ready();
    assert_eq!(availability(&program, "m"), "unloaded");
    let mut client = program.client();
    let refused = client.infer("m", &Body::row());
    assert_eq!((refused.status, refused.reason().as_str()), (503, "unavailable"));
    assert_eq!(client.infer("n", &Body::row()).status, 200);
    assert_eq!(program.executors().len(), 1);
    let shown =
        crate::program::sluice(&["status", "--url", &format!("http://{}", program.admin())]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let line = shown.lines().find(|line| line.starts_with("m ")).unwrap();
    assert!(line.ends_with("unloaded"), "{shown}");
    assert_eq!(order(&program, "m", "load").0, 200);
    assert_eq!(client.infer("m", &Body::row()).numbers(), count_from(1.0, 1));
}

#[test]
fn up_serves_the_rest_where_one_model_is_broken() {
    let setup = |router: &str| {
        let setup = Setup::new().router(router).digits("slo_ms = 50").gpus(2);
        setup.replace("digits.onnx", b"this is no model");
        setup.sleeper("sound", 1, "slo_ms = 20000")
    };
    let mut program = setup("").launch();
    program.wait_listening();
    let without = program.wait_word("ready, without ");
    assert!(without.starts_with("digits: ") && without.contains("digits.onnx"), "{without}");
    assert_eq!(program.ask_admin("/readyz").status, 200);
    let mut client = program.client();
    assert_eq!(client.get("/v2/health/ready").status, 200);
    assert_eq!(client.get("/v2/models/digits/ready").status, 503);
    assert_eq!(client.infer("sound", &Body::row()).status, 200);
    program.wait_log("model cannot be served; ready without it");

    let mut strict = setup("ready = \"all\"").launch();
    let (code, log) = strict.wait_end();
    assert_eq!(code, Some(78), "{log}");
    assert!(log.contains("model \"digits\" cannot be served: "), "{log}");
}

#[test]
fn strict_router_is_ready_only_while_every_model_is() {
    let setup = Setup::new().router("ready = \"all\"");
    let models = setup.sleeper("m", 1, "slo_ms = 20000").sleeper("n", 1, "slo_ms = 20000");
    let program = models.gpus(2).start();
    let pid = program.executors()[0];
    process::signal(pid, Signal::STOP);
    eventually("it is not ready", || (program.ask_admin("/readyz").status == 503).then_some(()));
    process::signal(pid, Signal::CONT);
    eventually("it is ready again", || (program.ask_admin("/readyz").status == 200).then_some(()));
    assert_eq!(unload(&program, "m"), 200);
    assert_eq!(program.ask_admin("/readyz").status, 200, "what is unloaded never counts");
}

#[test]
fn router_out_of_reach_of_every_replica_is_not_ready() {
    let program = Setup::new().sleeper("only", 1, "slo_ms = 20000").gpus(1).start();
    let pid = program.executors()[0];
    process::signal(pid, Signal::STOP);
    let verbose = eventually("it is cut off", || {
        let reply = program.ask_admin("/readyz?verbose");
        (reply.status == 503).then(|| reply.text())
    });
    assert!(verbose.contains("[-]replicas in reach failed: "), "{verbose}");
    process::signal(pid, Signal::CONT);
    eventually("it is ready again", || (program.ask_admin("/readyz").status == 200).then_some(()));
}

#[test]
fn unload_holds_at_every_router_and_outlives_the_leader() {
    let mut fleet = Routers::start(&[]);
    let (leader, _) = fleet.leader();
    let other = 1 - leader;
    let refused = order(&fleet.routers[other], "m", "unload");
    assert_eq!(refused, (503, "not_leader".to_owned()));
    assert_eq!(order(&fleet.routers[leader], "m", "unload").0, 200);
    for router in &fleet.routers {
        eventually("it knows", || (availability(router, "m") == "unloaded").then_some(()));
        let reply = router.client().infer("m", &Body::row());
        assert_eq!((reply.status, reply.reason().as_str()), (503, "unavailable"));
        assert_eq!(router.ask_admin("/readyz").status, 200);
    }
    eventually("the slice is free", || fleet.routers[leader].executors().is_empty().then_some(()));
    fleet.routers[leader].signal(Signal::KILL);
    fleet.routers[leader].wait_end();
    let survivor = &fleet.routers[other];
    eventually("the other leads", || leads(survivor));
    assert_eq!(availability(survivor, "m"), "unloaded");
    assert_eq!(order(survivor, "m", "load").0, 200);
    let served = Client::connect(survivor.inference()).infer("m", &Body::row());
    assert_eq!(served.numbers(), count_from(1.0, 1));
}

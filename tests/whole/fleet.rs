//! Routers and workers that come, go and die, and what their users notice.

use rustix::process::Signal;

use crate::{
    client::{Body, Client, all_served, count_from},
    folder::Folder,
    process,
    program::Program,
    setup::{Setup, TWO_GPUS},
    split::{self, Split, TOKEN},
    wait::eventually,
};

fn pair() -> Setup {
    let settings = "slo_ms = 20000\nmax_batch = 2\nreplicas = { min = 2, max = 2 }";
    Setup::new().sleeper("pair", 10, settings)
}

fn clients(program: &Program) -> Vec<Client> {
    (0..4).map(|_| program.client()).collect()
}

#[test]
fn requests_survive_executor_worker_and_router_deaths() {
    let mut fleet = Split::start(pair(), TWO_GPUS);
    let mut ever = fleet.router.executors();
    assert_eq!(ever.len(), 2);
    for round in 0..5 {
        let mut asking = clients(&fleet.router);
        let victim = fleet.router.executors()[usize::from(round % 2 == 1)];
        asking.iter_mut().for_each(|client| client.send_infer("pair", &Body::row()));
        process::signal(victim, Signal::KILL);
        for client in &mut asking {
            assert_eq!(client.receive().numbers(), count_from(1.0, 1), "round {round}");
        }
        eventually("it is back, and all are served meanwhile", || {
            all_served(&mut asking, round);
            let back = !fleet.router.executors().contains(&victim);
            (back && fleet.router.in_rotation("pair") == 2).then_some(())
        });
        let executors = fleet.router.executors();
        ever.extend(&executors);

        fleet.worker.signal(Signal::KILL);
        all_served(&mut asking, round);
        fleet = fleet.replace_worker(TWO_GPUS);
        eventually("the new worker is heard, and all are served meanwhile", || {
            all_served(&mut asking, round);
            let worker = &fleet.router.workers()[0];
            (worker["state"] == "connected" && worker["generation"] != 0).then_some(())
        });
        assert_eq!(fleet.router.executors(), executors, "round {round}: not adopted");
        all_served(&mut asking, round);

        drop(asking);
        fleet = fleet.replace_router();
        fleet.router.wait_word("ready");
        assert_eq!(fleet.router.executors(), executors, "round {round}: not kept");
        all_served(&mut clients(&fleet.router), round);
    }
    fleet.stop(&ever);
}

#[test]
fn router_without_workers_is_live_and_not_ready() {
    let (program, _) = split::router(pair());
    assert_eq!(program.ask_admin("/livez").status, 200);
    assert_eq!(program.ask_admin("/readyz").status, 503);
    assert_eq!(program.client().infer("pair", &Body::row()).status, 503);
    assert_eq!(program.workers().len(), 0);
}

#[test]
fn a_worker_with_another_token_is_refused_and_told_why() {
    let (router, door) = split::router(pair());
    let worker = split::worker(&door, "0123456789abcdef-other", "alpha", TWO_GPUS);
    eventually("the router reports it", || {
        worker.log().contains("the router refused us: the token is not this fleet's").then_some(())
    });
    eventually("the router tells too", || {
        router.log().contains("worker failed to join").then_some(())
    });
    assert_eq!(router.workers().len(), 0);
    assert!(!router.log().contains(TOKEN) && !worker.log().contains("fleet-other"));
}

#[test]
fn silent_worker_is_shown_and_its_replicas_keep_serving() {
    let fleet = Split::start(pair(), TWO_GPUS);
    let ever = fleet.router.executors();
    fleet.worker.signal(Signal::STOP);
    let mut asking = clients(&fleet.router);
    eventually("it is shown, and all are served meanwhile", || {
        all_served(&mut asking, 1);
        (fleet.router.workers()[0]["state"] == "silent").then_some(())
    });
    assert_eq!(fleet.router.in_rotation("pair"), 2);
    fleet.worker.signal(Signal::CONT);
    eventually("it is heard again", || {
        (fleet.router.workers()[0]["state"] == "connected").then_some(())
    });
    all_served(&mut asking, 2);
    assert_eq!(fleet.router.executors(), ever);
    fleet.stop(&ever);
}

#[test]
fn second_worker_of_one_directory_or_name_is_rejected() {
    let fleet = Split::start(pair(), TWO_GPUS);
    let file = fleet.worker.folder().path().join("worker.toml");
    let twin = ["worker", "--config", file.to_str().unwrap()];
    let mut same_directory = Program::launch(Folder::new(), &twin, &[]);
    let (code, log) = same_directory.wait_end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("another worker runs in "), "{log}");
    let same_name = split::worker(&fleet.door, TOKEN, "alpha", TWO_GPUS);
    eventually("it is refused", || {
        let refusal = "a worker named \\\"alpha\\\" is connected already";
        same_name.log().contains(refusal).then_some(())
    });
    assert_eq!(fleet.router.workers().len(), 1);
    let ever = fleet.router.executors();
    fleet.stop(&ever);
}

#[test]
fn stopping_worker_hands_its_replicas_over_first() {
    let fleet = Split::start(pair(), TWO_GPUS);
    let ever = fleet.router.executors();
    let mut beta = split::worker(&fleet.door, TOKEN, "beta", TWO_GPUS);
    eventually("both are there", || (fleet.router.workers().len() == 2).then_some(()));
    let mut asking = clients(&fleet.router);
    fleet.worker.signal(Signal::TERM);
    eventually("the other has them, and all are served meanwhile", || {
        all_served(&mut asking, 1);
        let served = fleet.router.in_rotation("pair") == 2;
        (served && !ever.iter().any(|pid| process::is_alive(*pid))).then_some(())
    });
    all_served(&mut asking, 2);
    let metrics = fleet.router.metrics();
    assert_eq!(metrics.ended_in_all("pair"), metrics.ended("pair", "served"));
    beta.signal(Signal::TERM);
    let (code, log) = beta.wait_end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("replicas not drained in time"), "{log}");
}

#[test]
fn with_a_state_dir_the_executors_are_found_again_after_a_kill() {
    let setup = pair().gpus(2).router("state_dir = \"state\"").router("drain_delay_s = 0");
    let mut program = setup.start();
    let executors = program.executors();
    program.signal(Signal::KILL);
    program.wait_end();
    let file = program.folder().path().join("sluice.toml");
    let mut program = program.again(&["up", "--config", file.to_str().unwrap()]);
    program.wait_ready();
    assert_eq!(program.executors(), executors);
    all_served(&mut clients(&program), 1);
    program.signal(Signal::TERM);
    assert_eq!(program.wait_end().0, Some(0));
    assert!(!executors.iter().any(|pid| process::is_alive(*pid)), "they outlived the program");
}

#[test]
fn models_and_replicas_come_and_go_by_reload_and_nobody_is_lost() {
    let settings = "slo_ms = 20000\nmax_batch = 2\nreplicas = { min = 1, max = 1 }";
    let setup = Setup::new().sleeper("pair", 10, settings).gpus(2);
    let text = setup.text();
    let program = setup.start();
    let mut asking = clients(&program);

    program.rewrite(&text.replace("min = 1, max = 1", "min = 2, max = 2"));
    assert_eq!(program.reload().status, 200);
    eventually("a second replica serves, and all are served meanwhile", || {
        all_served(&mut asking, 1);
        (program.in_rotation("pair") == 2).then_some(())
    });
    program.rewrite(&text);
    assert_eq!(program.reload().status, 200);
    eventually("it goes again, and all are served meanwhile", || {
        all_served(&mut asking, 2);
        (program.in_rotation("pair") == 1 && program.executors().len() == 1).then_some(())
    });

    let other = text.replace("name = \"pair\"", "name = \"other\"");
    let table = other.split("[[model]]").nth(1).unwrap().split("[[worker]]").next().unwrap();
    program.rewrite(&format!("{text}[[model]]{table}"));
    assert_eq!(program.reload().status, 200);
    eventually("the new model is served", || {
        (program.client().infer("other", &Body::row()).status == 200).then_some(())
    });
    program.rewrite(&text);
    assert_eq!(program.reload().status, 200);
    assert_eq!(program.client().infer("other", &Body::row()).status, 404);
    all_served(&mut asking, 3);
    let metrics = program.metrics();
    assert_eq!(metrics.ended_in_all("pair"), metrics.ended("pair", "served"));
}

#[test]
fn model_is_replaced_without_a_gap() {
    let settings = "slo_ms = 20000\nmax_batch = 2\nmemory_mib = 100";
    let setup = Setup::new().sleeper("pair", 10, settings).gpus(1);
    let text = setup.text();
    let program = setup.start();
    let replica = |program: &Program| program.slices()[0]["replicas"].clone();
    let before = replica(&program);
    program.rewrite(&text.replace("memory_mib = 100", "memory_mib = 200"));
    assert_eq!(program.reload().status, 200);
    let mut asking = clients(&program);
    eventually("another took its place, and all are served meanwhile", || {
        all_served(&mut asking, 1);
        let now = replica(&program);
        let other = now[0]["replica"] != before[0]["replica"];
        (now.as_array().unwrap().len() == 1 && other).then_some(())
    });
    all_served(&mut asking, 2);
    let metrics = program.metrics();
    assert_eq!(metrics.ended_in_all("pair"), metrics.ended("pair", "served"));
}

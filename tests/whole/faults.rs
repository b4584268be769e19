//! Processes that die, and what their users notice.

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    client::{Body, all_served, count_from},
    process,
    program::Program,
    setup::Setup,
    wait::eventually,
};

/// Whether the slice's executor has been started again and its replicas are warm.
fn is_back(slice: &Value, restarts: u64) -> bool {
    let replicas = slice["replicas"].as_array().unwrap();
    slice["lanes"][0]["restarts"] == restarts
        && replicas.iter().all(|replica| replica["state"] == "ready")
}

#[test]
fn hung_executor_requests_are_served_by_another_in_time() {
    let program = Setup::new()
        .sleeper("pair", 20, "slo_ms = 60000\nmax_batch = 1\nreplicas = { min = 2, max = 2 }")
        .gpus(2)
        .start();
    let hung = program.executors()[0];
    process::signal(hung, Signal::STOP);
    // It hangs for as long as it takes, which may be no shorter than their deadline.
    let mut clients: Vec<_> = (0..4).map(|_| program.client()).collect();
    all_served(&mut clients, 0);
    eventually("it is out of rotation", || (program.in_rotation("pair") == 1).then_some(()));
    all_served(&mut clients, 1);
    program.wait_log("the executor was silent");
    process::signal(hung, Signal::CONT);
    eventually("it is back, and the same", || {
        let back = program.in_rotation("pair") == 2 && program.executors().contains(&hung);
        back.then_some(())
    });
}

#[test]
fn no_request_fails_when_one_of_two_executors_is_killed() {
    let mut program = Setup::new()
        .router("drain_delay_s = 0")
        .sleeper("pair", 20, "slo_ms = 20000\nmax_batch = 2\nreplicas = { min = 2, max = 2 }")
        .gpus(2)
        .start();
    let mut clients: Vec<_> = (0..4).map(|_| program.client()).collect();
    let mut round = 0;
    let mut ever: Vec<u32> = program.executors();
    assert_eq!(ever.len(), 2);
    for victim in [0, 1] {
        let pid = program.executors()[victim];
        for client in &mut clients {
            client.send_infer("pair", &Body::row());
        }
        eventually("work is under way", || {
            (program.state("pair")["dispatch"]["in_flight"] != 0).then_some(())
        });
        process::signal(pid, Signal::KILL);
        for client in &mut clients {
            assert_eq!(client.receive().numbers(), count_from(1.0, 1));
        }
        eventually("the replica is back, and all are served meanwhile", || {
            round += 1;
            all_served(&mut clients, round);
            let slices = program.slices();
            slices
                .iter()
                .enumerate()
                .all(|(index, slice)| is_back(slice, u64::from(index <= victim)))
                .then_some(())
        });
        assert_ne!(program.executors()[victim], pid);
        ever.extend(program.executors());
    }
    eventually("both are in rotation", || (program.in_rotation("pair") == 2).then_some(()));
    let metrics = program.metrics();
    assert_eq!(metrics.ended_in_all("pair"), metrics.ended("pair", "served"));
    program.signal(Signal::TERM);
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(0), "{log}");
    let left: Vec<u32> = ever.into_iter().filter(|pid| process::is_alive(*pid)).collect();
    assert_eq!(left, [0; 0], "executors outlived the program");
    assert!(program.folder().names().iter().all(|name| !name.starts_with("sluice-")));
}

#[test]
fn model_without_replica_is_refused_until_it_is_back() {
    let program =
        Setup::new().sleeper("one", 1_000, "slo_ms = 20000\nmax_batch = 1").gpus(1).start();
    assert_eq!(program.client().infer("one", &Body::row()).status, 200);
    let pid = program.executors()[0];
    process::signal(pid, Signal::KILL);
    let mut client = program.client();
    let refusal = eventually("it is noticed", || {
        let reply = client.infer("one", &Body::row());
        // The last one may have been given to the executor as it died.
        (reply.status != 500).then_some(reply)
    });
    assert_eq!((refusal.status, refusal.reason().as_str()), (503, "no_replica"));
    assert!(refusal.retry_after() >= Some(1), "{refusal:?}");
    assert_eq!(program.ask_admin("/readyz").status, 200, "nor to be taken out of rotation");
    assert_eq!(program.ask_admin("/livez").status, 200, "no replica is no reason to be killed");
    assert_eq!(client.get("/v2/models/one/ready").status, 503);
    eventually("it is served again", || {
        let reply = client.infer("one", &Body::row());
        match reply.status {
            200 => Some(()),
            status => {
                assert_eq!((status, reply.reason().as_str()), (503, "no_replica"));
                None
            }
        }
    });
    assert_ne!(program.executors(), [pid]);
    assert_eq!(program.slices()[0]["lanes"][0]["restarts"], 1);
    assert_eq!(program.ask_admin("/readyz").status, 200);
    assert!(program.metrics().refused("one", "no_replica") >= 1);
}

#[test]
fn executors_end_by_themselves_when_the_router_is_killed() {
    let mut program = Setup::new()
        .sleeper("pair", 5, "slo_ms = 1000\nreplicas = { min = 2, max = 2 }")
        .gpus(2)
        .start();
    let executors = program.executors();
    assert!(executors.len() == 2 && executors.iter().all(|pid| process::is_alive(*pid)));
    program.signal(Signal::KILL);
    let (code, _) = program.wait_end();
    assert_eq!(code, None, "it was killed");
    eventually("the executors are gone", || {
        (!executors.iter().any(|pid| process::is_alive(*pid))).then_some(())
    });
}

#[test]
fn an_executor_that_keeps_dying_harms_no_other_model() {
    let program = Setup::new()
        .sleeper("frail", 5, "slo_ms = 20000")
        .sleeper("sound", 5, "slo_ms = 20000")
        .gpus(2)
        .start();
    let mut client = program.client();
    for death in 1..=3 {
        let slice = |program: &Program| {
            let of_frail = |slice: &&Value| slice["replicas"][0]["model"] == "frail";
            program.slices().iter().find(of_frail).unwrap().clone()
        };
        let pid = eventually("it runs", || slice(&program)["lanes"][0]["pid"].as_u64());
        process::signal(pid.try_into().unwrap(), Signal::KILL);
        eventually("its death is known", || {
            (slice(&program)["lanes"][0]["restarts"] == death).then_some(())
        });
        assert_eq!(client.infer("sound", &Body::row()).status, 200);
    }
    eventually("it is back", || (client.infer("frail", &Body::row()).status == 200).then_some(()));
}

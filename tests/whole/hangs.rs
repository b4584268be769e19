//! Executors that hang: their processes are there, their sockets are open, and nothing comes.

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    client::{Body, all_served},
    process,
    program::Program,
    setup::Setup,
    wait::eventually,
};

fn executors_of(program: &Program, model: &str) -> Vec<u32> {
    let of = |slice: &Value| {
        let there = slice["replicas"][0]["model"] == model;
        there.then(|| slice["lanes"][0]["pid"].as_u64())?.map(|pid| pid.try_into().unwrap())
    };
    program.slices().iter().filter_map(of).collect()
}

#[test]
fn hung_executor_is_replaced_and_its_requests_end_in_time() {
    let program = Setup::new()
        .sleeper("pair", 10, "slo_ms = 8000\nmax_batch = 2\nreplicas = { min = 2, max = 2 }")
        .sleeper("lone", 10, "slo_ms = 1000\nmax_batch = 1\nreplicas = { min = 1, max = 1 }")
        .gpus(3)
        .start();
    let (pair, lone) = (executors_of(&program, "pair"), executors_of(&program, "lone"));
    assert_eq!((pair.len(), lone.len()), (2, 1));
    for pid in [pair[0], lone[0]] {
        process::signal(pid, Signal::STOP);
    }
    let mut alone = program.client();
    let reply = alone.infer("lone", &Body::row());
    assert_eq!(reply.status, 504, "{}", reply.text());

    let mut clients: Vec<_> = (0..4).map(|_| program.client()).collect();
    let mut round = 0;
    eventually("both are replaced, and all of the pair are served meanwhile", || {
        round += 1;
        all_served(&mut clients, round);
        let refused = alone.infer("lone", &Body::row());
        assert!([200, 503, 504].contains(&refused.status), "{}", refused.text());
        let gone = !process::is_alive(pair[0]) && !process::is_alive(lone[0]);
        let back = program.in_rotation("pair") == 2 && program.in_rotation("lone") == 1;
        (gone && back).then_some(())
    });
    assert_eq!(alone.infer("lone", &Body::row()).status, 200);
    assert!(program.log().contains("executor hangs"), "{}", program.log());
    assert!(executors_of(&program, "pair").contains(&pair[1]), "the sound one was left alone");
    let metrics = program.metrics();
    assert_eq!(metrics.ended_in_all("pair"), metrics.ended("pair", "served"));
    program.wait_idle("pair");
    program.wait_idle("lone");
}

//! Workers, routers and etcd whose messages do not always come through.

use serde_json::json;

use crate::{
    client::all_served,
    etcd::Etcd,
    process,
    program::Program,
    relay::Relay,
    setup::{Setup, TWO_GPUS},
    split::{self, TOKEN},
    training::post,
    wait::eventually,
};

/// Lines that must have been spoiled for the test to have tried something.
const ENOUGH: u64 = 25;

/// Whether the worker is heard, does what it was last told, and has `replicas` and no more.
fn is_as_wished(router: &Program, replicas: usize) -> bool {
    let worker = &router.workers()[0];
    let done = worker["generation"] == worker["desired_generation"];
    worker["state"] == "connected"
        && done
        && router.in_rotation("pair") == replicas
        && router.executors().len() == replicas
}

#[test]
fn worker_reaches_desired_state_despite_damaged_messages() {
    let settings = "slo_ms = 20000\nmax_batch = 2\nreplicas = { min = 2, max = 2 }";
    let setup = Setup::new().sleeper("pair", 5, settings);
    let seed = 9;
    let (mut router, door) = split::router(setup);
    let relay = Relay::of_lines(&door, seed);
    let mut worker = split::worker(&relay.address.to_string(), TOKEN, "alpha", TWO_GPUS);
    worker.wait_word("worker ");
    router.wait_word("ready");
    let path = router.folder().path().join("sluice.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut ever = router.executors();
    let mut clients: Vec<_> = (0..4).map(|_| router.client()).collect();

    relay.be_wild(true);
    let mut least = 2;
    eventually("enough was spoiled, and all are served meanwhile", || {
        least = 3 - least;
        router.rewrite(&text.replace("min = 2, max = 2", &format!("min = {least}, max = {least}")));
        assert_eq!(router.reload().status, 200, "seed {seed}");
        for _ in 0..20 {
            all_served(&mut clients, seed);
        }
        ever.extend(router.executors());
        (relay.spoiled() >= ENOUGH).then_some(())
    });
    relay.be_wild(false);
    relay.cut();
    router.rewrite(&text);
    assert_eq!(router.reload().status, 200, "seed {seed}");
    eventually(&format!("seed {seed}: all is as it was, and all are served meanwhile"), || {
        all_served(&mut clients, seed);
        is_as_wished(&router, 2).then_some(())
    });
    let last = router.executors();
    let left: Vec<u32> = ever.into_iter().filter(|pid| !last.contains(pid)).collect();
    eventually(&format!("seed {seed}: no executor is left over"), || {
        (!left.iter().any(|pid| process::is_alive(*pid))).then_some(())
    });
    let generations = relay.generations();
    assert!(generations.is_sorted(), "seed {seed}: a generation went back: {generations:?}");
    let metrics = router.metrics();
    assert_eq!(metrics.ended_in_all("pair"), metrics.ended("pair", "served"), "seed {seed}");
}

/// A router that asks etcd through a relay, with a worker.
fn beside_etcd(relay: &Relay) -> (Program, Program) {
    let endpoint = format!("[etcd]\nendpoints = \"http://{}\"\nlease_s = 3", relay.address);
    let settings = "slo_ms = 20000\nreplicas = { min = 1, max = 1 }";
    let setup = Setup::new()
        .sleeper("pair", 5, settings)
        .tables("[loans]\nallow = [\"/bin/sh\"]")
        .tables(&endpoint);
    let (mut router, door) = split::router(setup);
    let lends = format!("[loans]\nallow = [\"/bin/sh\"]\n{TWO_GPUS}");
    let mut worker = split::worker(&door, TOKEN, "alpha", &lends);
    worker.wait_word("worker ");
    router.wait_word("ready");
    (router, worker)
}

#[test]
fn router_stores_each_job_once_despite_damaged_etcd_traffic() {
    let etcd = Etcd::start();
    let seed = 5;
    let relay = Relay::of_bytes(etcd.endpoint().trim_start_matches("http://"), seed);
    let (router, _worker) = beside_etcd(&relay);
    let mut clients = vec![router.client()];
    let mut terms = Vec::new();
    let mut look = || {
        all_served(&mut clients, seed);
        let lead = router.ask_admin("/admin/v1/state").json()["lead"].clone();
        terms.extend(lead["term"].as_u64());
    };
    let job = json!({"argv": ["/bin/sh", "-c", "true"], "retries": 0});
    let submit = |key: &str| {
        let reply = post(&router, &job, &[("idempotency-key", key)]);
        match reply.status {
            200 | 201 => reply.json()["id"].as_u64(),
            status => {
                assert_eq!(status, 503, "seed {seed}: {}", reply.text());
                None
            }
        }
    };
    relay.be_wild(true);
    let mut ids = Vec::new();
    for number in 0..6 {
        let key = format!("key-{number}");
        ids.push(eventually(&format!("seed {seed}: job {number} is kept"), || {
            look();
            submit(&key)
        }));
    }
    eventually(&format!("seed {seed}: enough was spoiled"), || {
        look();
        (relay.spoiled() >= ENOUGH).then_some(())
    });
    relay.be_wild(false);
    relay.cut();
    for (number, id) in ids.iter().enumerate() {
        let again = eventually(&format!("seed {seed}: all is well again"), || {
            look();
            submit(&format!("key-{number}"))
        });
        assert_eq!(again, *id, "seed {seed}: job {number} was kept twice");
    }
    let known = router.ask_admin("/admin/v1/jobs").json()["jobs"].as_array().unwrap().len();
    assert_eq!(known, ids.len(), "seed {seed}");
    assert!(terms.is_sorted(), "seed {seed}: a term went back: {terms:?}");
}

//! Models that have no replica while nobody asks for them.

use crate::{client::Body, setup::Setup, wait::eventually};

#[test]
fn idle_model_scales_to_zero_and_first_request_starts_it() {
    let program = Setup::new()
        .sleeper("seldom", 1, "slo_ms = 20000\nreplicas = { min = 0, max = 1 }")
        .tables("[planner]\nidle_s = 1\npatience_s = 1")
        .gpus(1)
        .start();
    eventually("it sleeps", || (program.state("seldom")["availability"] == "asleep").then_some(()));
    let mut client = program.client();
    assert_eq!(client.get("/v2/models/seldom/ready").status, 200, "a client must dare to ask");
    assert_eq!(client.get("/v2/health/ready").status, 200);
    assert_eq!(client.get("/v2/models/seldom").json()["inputs"][0]["name"], "x");
    let first = client.infer("seldom", &Body::row());
    assert_eq!((first.status, &*first.reason()), (503, "no_replica"), "{first:?}");
    assert!(first.retry_after() >= Some(1), "{first:?}");
    eventually("it is awake", || {
        (client.infer("seldom", &Body::row()).status == 200).then_some(())
    });
}

//! Clients that leave before their answer comes.

use serde_json::json;

use crate::{
    client::{Body, Client, count_from},
    program::Program,
    setup::Setup,
    wait::eventually,
};

const ALL: usize = 300;
const STAY: usize = 30;

/// One slow replica that would need some seven seconds for [`ALL`] of them.
fn program() -> Program {
    Setup::new().sleeper("slow", 100, "slo_ms = 60000\nmax_batch = 4").gpus(1).start()
}

fn waiting(program: &Program) -> u64 {
    program.state("slow")["dispatch"]["waiting"].as_u64().unwrap()
}

/// Opens connections with a request each, and returns once they wait.
fn crowd(program: &Program, size: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..size).map(|_| program.client()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.send_infer("slow", &Body::json(&count_from(index as f32, 1)));
    }
    eventually("the crowd waits", || {
        let dispatch = &program.state("slow")["dispatch"];
        let executed = program.stats("slow")["inference_count"].as_u64().unwrap();
        let here = dispatch["waiting"].as_u64().unwrap() + dispatch["in_flight"].as_u64().unwrap();
        (here + executed >= size as u64).then_some(())
    });
    clients
}

#[test]
fn requests_of_disconnected_clients_are_not_executed() {
    let program = program();
    let mut clients = crowd(&program, ALL);
    clients.truncate(STAY);
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().numbers(), count_from(index as f32, 1), "client {index}");
    }
    program.wait_idle("slow");
    let executed = program.stats("slow")["inference_count"].as_u64().unwrap();
    assert!((STAY as u64..=100).contains(&executed), "{executed} of {ALL} were executed");
    let metrics = program.metrics();
    let served = metrics.ended("slow", "served");
    assert_eq!(served + metrics.ended("slow", "abandoned"), ALL as u64);
    assert!(executed >= served, "{served} served, {executed} executed");
    // Two batches may be on the replica when somebody leaves; leaving takes a while to be noticed.
    assert!(executed - served <= 40, "{executed} executed, {served} served");
}

#[test]
fn disconnects_leave_no_state_behind() {
    let program = program();
    let fresh = program.state("slow")["dispatch"].clone();
    for wave in 0..3 {
        drop(crowd(&program, 60));
        eventually("nobody waits", || (waiting(&program) == 0).then_some(()));
        program.wait_idle("slow");
        let metrics = program.metrics();
        assert_eq!(metrics.ended_in_all("slow"), 60 * (wave + 1), "wave {wave}");
    }
    let mut after = program.state("slow")["dispatch"].clone();
    assert_eq!(after["waiting"], 0);
    assert_eq!(after["in_flight"], 0);
    assert_eq!(after["oldest_age_ms"], 0.0);
    assert_eq!(after["limits"].as_array().unwrap().len(), 1);
    // What was learned may differ: how fast they came, and how large batches may be.
    for learned in ["rate_rps", "limits"] {
        after[learned] = fresh[learned].clone();
    }
    assert_eq!(after, fresh);
    assert_eq!(program.metrics().value("sluice_queue_requests{model=\"slow\"}"), 0.0);

    let mut clients = crowd(&program, 12);
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().numbers(), count_from(index as f32, 1), "client {index}");
    }
}

#[test]
fn a_client_that_leaves_within_its_body_ends_as_a_request_too() {
    let program = program();
    let head = "POST /v2/models/slow/infer HTTP/1.1\r\nhost: localhost\r\n";
    for _ in 0..5 {
        let mut client = program.client();
        client
            .say(format!("{head}content-length: 500\r\n\r\n{}", json!({"inputs": []})).as_bytes());
    }
    eventually("all five have ended", || {
        (program.metrics().ended_in_all("slow") == 5).then_some(())
    });
    assert_eq!(program.stats("slow")["inference_count"], 0);
}

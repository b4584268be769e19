//! More than can be served in time: said at once, with the numbers, the same to everyone.

use std::io::Write;

use flate2::{Compression, write::ZlibEncoder};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    client::{Body, Client, Reply, count_from},
    process,
    program::Program,
    setup::Setup,
    wait::eventually,
};

/// Three seconds a request, eight to answer: one runs, one waits, a third would be late. (So long a
/// model is not run for warm-up, hence the test is quick.)
fn three_seconds() -> Program {
    Setup::new().sleeper("slow", 3_000, "slo_ms = 8000\nmax_batch = 1").gpus(1).start()
}

/// Sends as many as there is time for: one that runs and one that waits.
fn fill(program: &Program) -> [Client; 2] {
    let mut clients = [program.client(), program.client()];
    for (client, (running, waits)) in clients.iter_mut().zip([(1, 0), (1, 1)]) {
        client.send_infer("slow", &Body::row());
        eventually("the request is in", || {
            let dispatch = &program.state("slow")["dispatch"];
            (dispatch["in_flight"] == running && dispatch["waiting"] == waits).then_some(())
        });
    }
    clients
}

#[track_caller]
fn is_overload(reply: &Reply) {
    assert_eq!((reply.status, reply.reason().as_str()), (503, "overloaded"), "{}", reply.text());
    assert!(reply.retry_after() >= Some(1), "no Retry-After: {reply:?}");
    let body = reply.json();
    for number in ["waiting", "predicted_ms", "slo_ms", "retry_after_ms"] {
        assert!(body[number].is_number(), "no {number} in {body}");
    }
    assert_eq!(body["model"], "slow");
}

#[test]
fn hopeless_request_is_refused_while_work_ahead_still_runs() {
    let program = three_seconds();
    let _ahead = fill(&program);
    let reply = program.client().infer("slow", &Body::row());
    is_overload(&reply);
    let body = reply.json();
    assert_eq!(body["waiting"], 1);
    assert!(body["predicted_ms"].as_f64() > body["slo_ms"].as_f64(), "{body}");
    assert_eq!(program.stats("slow")["inference_count"], 0, "the refusal waited for a batch");
}

#[test]
fn crowd_gets_responses_or_refusals_with_numbers() {
    let program = Setup::new().sleeper("slow", 100, "slo_ms = 1000\nmax_batch = 2").gpus(1).start();
    let mut clients: Vec<_> = (0..120).map(|_| program.client()).collect();
    clients.iter_mut().for_each(|client| client.send_infer("slow", &Body::row()));
    let (mut served, mut refused) = (0, 0);
    for client in &mut clients {
        let reply = client.receive();
        match reply.status {
            200 => served += 1,
            503 => {
                is_overload(&reply);
                refused += 1;
            }
            504 => assert_eq!(reply.reason(), "too_late"),
            status => panic!("{status}: {}", reply.text()),
        }
    }
    assert!(served >= 2, "{served} served");
    assert!(refused >= 60, "{refused} refused of 120, where a second has room for 20");
    let metrics = program.metrics();
    assert_eq!(metrics.ended("slow", "served"), served);
    assert_eq!(metrics.refused("slow", "overloaded"), refused);
    assert_eq!(metrics.refused("slow", "too_late"), 120 - served - refused);
    assert_eq!(program.client().infer("slow", &Body::row()).status, 200, "it has recovered");
}

#[test]
fn timeout_shorter_than_one_batch_is_told_at_once_as_too_short() {
    let program = three_seconds();
    let in_header = Body::row().with("sluice-timeout-ms", "100");
    let mut in_body = Body::row();
    let mut body: serde_json::Value = serde_json::from_slice(&in_body.bytes).unwrap();
    body["parameters"] = json!({"timeout": 100_000});
    in_body.bytes = body.to_string().into_bytes();
    for body in [in_header, in_body] {
        let reply = program.client().infer("slow", &body);
        let told = (reply.status, reply.reason());
        assert_eq!(told, (504, "deadline_too_short".to_owned()), "{}", reply.text());
        assert_eq!(reply.retry_after(), None, "waiting does not help");
        let numbers = reply.json();
        assert_eq!((&numbers["timeout_ms"], &numbers["slo_ms"]), (&json!(100.0), &json!(8_000.0)));
        assert!(numbers["predicted_ms"].as_f64() >= Some(2_900.0), "{numbers}");
    }
    let dispatch = &program.state("slow")["dispatch"];
    assert_eq!((&dispatch["waiting"], &dispatch["in_flight"]), (&json!(0), &json!(0)));
    let metrics = program.metrics();
    assert_eq!(metrics.refused("slow", "deadline_too_short"), 2);
    assert_eq!(metrics.refused("slow", "overloaded"), 0);
    assert_eq!(program.state("slow")["recent"]["attainment"], json!(null), "nothing counts");
}

#[test]
fn every_form_of_a_request_is_refused_alike_under_load() {
    let program = three_seconds();
    let _ahead = fill(&program);
    let data = count_from(1.0, 1);
    let mut answers = Vec::new();
    for body in forms(&data) {
        let reply = program.client().infer("slow", &body);
        is_overload(&reply);
        answers.push((reply.status, reply.reason(), reply.json()["waiting"].clone()));
    }
    assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:?}");
}

#[test]
fn every_form_of_a_request_is_served_alike_without_load() {
    let program = Setup::new().sleeper("slow", 5, "slo_ms = 20000").gpus(1).start();
    let data = count_from(1.0, 1);
    for body in forms(&data) {
        assert_eq!(program.client().infer("slow", &body).numbers(), data, "{body:?}");
    }
}

/// JSON, bytes, raw and compressed.
fn forms(data: &[f32]) -> [Body; 4] {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(&Body::json(data).bytes).unwrap();
    let packed = Body { headers: Vec::new(), bytes: packer.finish().unwrap() };
    let packed = packed.with("content-encoding", "deflate");
    [Body::json(data), Body::binary(data), Body::raw(data), packed]
}

#[test]
fn refusal_comes_at_the_deadline_while_the_replica_hangs() {
    let program = Setup::new().sleeper("slow", 20, "slo_ms = 300\nmax_batch = 1").gpus(1).start();
    let executor = program.executors()[0];
    process::signal(executor, Signal::STOP);
    let mut clients = [program.client(), program.client(), program.client()];
    clients.iter_mut().for_each(|client| client.send_infer("slow", &Body::row()));
    for client in &mut clients {
        let reply = client.receive();
        let reason = reply.reason();
        let told = [(504, "too_late"), (503, "overloaded")].contains(&(reply.status, &reason));
        assert!(told, "{}", reply.text());
    }
    assert_eq!(program.stats("slow")["inference_count"], 0, "it was stuck all the while");
    process::signal(executor, Signal::CONT);
    eventually("it serves again", || {
        (program.client().infer("slow", &Body::row()).status == 200).then_some(())
    });
    assert_eq!(program.executors(), [executor], "being slow is no reason to be replaced");
}

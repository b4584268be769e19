//! Stopping without losing a request.

use std::net::TcpStream;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    client::{Body, Client, count_from},
    program::Program,
    setup::Setup,
    wait::eventually,
};

fn program(delay_s: u32, latency_ms: u32) -> Program {
    Setup::new()
        .router(&format!("drain_delay_s = {delay_s}"))
        .sleeper("slow", latency_ms, "slo_ms = 20000\nmax_batch = 1")
        .gpus(1)
        .start()
}

fn wait_unready(program: &Program) {
    eventually("it is not ready", || (program.ask_admin("/readyz").status == 503).then_some(()));
}

#[test]
fn drain_fails_readiness_before_it_stops_accepting() {
    let mut program = program(2, 300);
    assert_eq!(program.ask_admin("/readyz").status, 200);
    program.signal(Signal::TERM);
    wait_unready(&program);
    assert_eq!(program.ask_admin("/livez").status, 200);
    let mut late = Client::connect(program.inference());
    assert_eq!(late.get("/v2/health/ready").status, 503);
    let data = count_from(7.0, 1);
    assert_eq!(program.client().infer("slow", &Body::json(&data)).numbers(), data);
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(0), "{log}");
    assert!(TcpStream::connect(program.inference()).is_err(), "somebody still listens");
    assert_eq!(program.folder().names(), ["slow.csv", "sluice.toml"]);
}

#[test]
fn requests_in_flight_are_answered_during_a_drain() {
    for delay_s in [0, 1] {
        let mut program = program(delay_s, 1_500);
        let mut clients = [program.client(), program.client()];
        clients.iter_mut().for_each(|client| client.send_infer("slow", &Body::row()));
        eventually("one runs and one waits", || {
            let dispatch = &program.state("slow")["dispatch"];
            (dispatch["in_flight"] == 1 && dispatch["waiting"] == 1).then_some(())
        });
        program.signal(Signal::TERM);
        eventually("the listener is closed", || {
            TcpStream::connect(program.inference()).is_err().then_some(())
        });
        for client in &mut clients {
            assert_eq!(client.receive().numbers(), count_from(1.0, 1), "delay {delay_s}");
        }
        let (code, log) = program.wait_end();
        assert_eq!(code, Some(0), "delay {delay_s}: {log}");
    }
}

#[test]
fn interrupt_skips_the_drain_delay_and_loses_no_request() {
    // With the delay, this would take an hour.
    let mut program = program(3_600, 700);
    let mut client = program.client();
    client.send_infer("slow", &Body::row());
    eventually("it runs", || (program.state("slow")["dispatch"]["in_flight"] == 1).then_some(()));
    program.signal(Signal::INT);
    program.wait_log("press Ctrl-C again to stop at once");
    assert_eq!(client.receive().numbers(), count_from(1.0, 1));
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn second_signal_ends_a_drain_at_once() {
    // If the second signal were not heard, this would take the hour of the delay.
    let mut program = program(3_600, 5);
    let executors = program.executors();
    program.signal(Signal::TERM);
    wait_unready(&program);
    program.wait_log("a second signal stops at once");
    assert_eq!(program.client().infer("slow", &Body::row()).status, 200);
    program.signal(Signal::INT);
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(1), "{log}");
    assert!(executors.iter().all(|pid| !crate::process::is_alive(*pid)));
}

#[test]
fn drain_over_http_equals_a_signal() {
    let mut program = program(0, 700);
    let mut client = program.client();
    client.send_infer("slow", &Body::row());
    eventually("it runs", || (program.state("slow")["dispatch"]["in_flight"] == 1).then_some(()));
    let reply = Client::connect(program.admin()).post("/admin/v1/drain", &[], b"");
    assert_eq!(reply.status, 202, "{}", reply.text());
    assert_eq!(client.receive().numbers(), count_from(1.0, 1));
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn a_signal_before_the_models_are_warm_ends_it_in_order() {
    let mut program = Setup::new()
        .router("drain_delay_s = 0")
        .sleeper("slow", 1_900, "slo_ms = 20000\nmax_batch = 1")
        .gpus(1)
        .launch();
    assert!(program.line().unwrap().starts_with("inference "));
    program.signal(Signal::TERM);
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn an_orderly_stop_gives_no_reason_to_worry() {
    for (signal, kept) in [(Signal::TERM, ""), (Signal::INT, "state_dir = \"state\"")] {
        let mut program = Setup::new()
            .router(&format!("drain_delay_s = 0\n{kept}"))
            .sleeper("m", 5, "slo_ms = 20000\nreplicas = { min = 2, max = 2 }")
            .gpus(2)
            .start();
        assert_eq!(program.client().infer("m", &Body::row()).status, 200);
        // As a terminal does, which tells all that was started there.
        kill_process_group(Pid::from_raw(program.pid().cast_signed()).unwrap(), signal).unwrap();
        let (code, log) = program.wait_end();
        assert_eq!(code, Some(0), "{log}");
        assert!(!log.contains("\"WARN\"") && !log.contains("\"ERROR\""), "{log}");
        assert!(log.contains("\"drained\""), "{log}");
    }
}

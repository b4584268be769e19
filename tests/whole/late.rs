//! `timeout_ms` beside `slo_ms`: a late answer is served from what is left, and counted late.

use crate::{
    client::{Body, Client, count_from},
    setup::Setup,
    wait::eventually,
};

#[test]
fn callers_cannot_burn_the_objective_with_short_limits() {
    let program = Setup::new().sleeper("quick", 5, "slo_ms = 1000").gpus(1).start();
    for _ in 0..20 {
        let reply = program.client().infer("quick", &Body::row().with("sluice-timeout-ms", "1"));
        assert_eq!((reply.status, reply.reason().as_str()), (504, "deadline_too_short"));
        let numbers = reply.json();
        let [predicted, timeout, slo] =
            ["predicted_ms", "timeout_ms", "slo_ms"].map(|name| numbers[name].as_f64().unwrap());
        assert!(timeout == 1.0 && slo == 1_000.0, "{numbers}");
        assert!(timeout < predicted && predicted < slo, "{numbers}");
    }
    assert_eq!(program.client().infer("quick", &Body::row()).status, 200);
    let model = program.state("quick");
    assert_eq!(model["recent"]["attainment"], 1.0, "{model}");
    assert_eq!(program.metrics().refused("quick", "deadline_too_short"), 20);
    assert_eq!(program.metrics().refused("quick", "overloaded"), 0);
}

#[test]
fn late_answers_are_served_after_the_others_and_counted_late() {
    let settings = "slo_ms = 1000\ntimeout_ms = 30000\nmax_batch = 1";
    let program = Setup::new().sleeper("slow", 200, settings).gpus(1).start();
    let mut clients: Vec<Client> = (0..12).map(|_| program.client()).collect();
    clients.iter_mut().for_each(|client| client.send_infer("slow", &Body::row()));
    eventually("all are in", || {
        let dispatch = &program.state("slow")["dispatch"];
        let inside = dispatch["waiting"].as_u64()? + dispatch["in_flight"].as_u64()?;
        (inside >= 9).then_some(())
    });
    // One who does not want it late is told now, and one who comes for less than `timeout_ms` waits.
    let hurried = program.client().infer("slow", &Body::row().with("sluice-timeout-ms", "1000"));
    assert_eq!((hurried.status, hurried.reason().as_str()), (503, "overloaded"));
    let patient = Body::row().with("sluice-timeout-ms", "20000");
    assert_eq!(program.client().infer("slow", &patient).status, 200);
    for client in &mut clients {
        let reply = client.receive();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let metrics = program.metrics();
    assert_eq!((metrics.ended("slow", "served"), metrics.refused("slow", "too_late")), (13, 0));
    let late = metrics.value("sluice_requests_late_total{model=\"slow\"}");
    let within = metrics.value("sluice_requests_within_objective_total{model=\"slow\"}");
    assert!(late >= 6.0 && late + within == 13.0, "{late} late, {within} within");
}

#[test]
fn late_requests_make_room_when_bodies_fill_the_memory() {
    // A row has 16 KiB: two dozen fill the memory, of which four are in time.
    let csv = "profile,batch,processes,throughput_rps,latency_ms\n7g.80gb,1,1,1,100\n";
    let wide = "[[model]]\nname = \"wide\"\nengine = \"synthetic\"\nprofile_csv = \"wide.csv\"\n\
                inputs = [{ name = \"x\", datatype = \"FP32\", shape = [-1, 4096] }]\n\
                outputs = [{ name = \"y\", datatype = \"FP32\", shape = [-1, 4] }]\n\
                slo_ms = 400\ntimeout_ms = 60000\nmax_batch = 1\n";
    let setup = Setup::new()
        .router("max_body_bytes = 40000\nmax_decompressed_bytes = 40000")
        .router("max_buffered_bytes = 400000")
        .tables(wide)
        .sleeper("quick", 5, "slo_ms = 5000")
        .gpus(2);
    setup.replace("wide.csv", csv.as_bytes());
    let program = setup.start();
    let large = Body::raw(&count_from(0.0, 1_024));
    let mut clients: Vec<Client> = (0..60).map(|_| program.client()).collect();
    for client in &mut clients {
        client.send_infer("wide", &large);
    }
    eventually("the memory is full", || {
        let refused = program.metrics().refused("wide", "overloaded");
        (refused >= 20).then_some(())
    });
    let reply = program.client().infer("quick", &Body::binary(&count_from(0.0, 32)));
    assert_eq!(reply.status, 200, "{}", reply.text());
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.receive().status).collect();
    let served = statuses.iter().filter(|status| **status == 200).count();
    // Four in time, and some of the late; how many depends on how busy the machine is.
    assert!(served >= 6, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    let late = program.metrics().value("sluice_requests_late_total{model=\"wide\"}");
    assert!(late >= 2.0, "those that fit are served late: {late}");
}

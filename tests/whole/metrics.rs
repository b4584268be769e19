//! What Prometheus sees.

use router::metrics::Spec;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    client::{Body, count_from},
    process,
    program::Program,
    setup::Setup,
    wait::eventually,
};

/// Those that say how a model is, not what has happened.
const NOT_ZERO: [&str; 7] = [
    "sluice_model_ready",
    "sluice_objective_seconds",
    "sluice_objective_target_ratio",
    "sluice_batch_limit_rows",
    "sluice_batch_limit_requests",
    "sluice_replicas",
    "sluice_interference_ratio",
];
/// Those that are there only for what has them: a tenant with a rate, a GPU that counts its errors, a
/// model that was measured end to end.
const NOT_ALWAYS: [&str; 3] = [
    "sluice_tenant_rate_limit_rows_per_second",
    "sluice_worker_gpu_memory_errors_total",
    "sluice_placement_capacity_requests_per_second",
];

fn declared() -> impl Iterator<Item = &'static Spec> {
    router::metrics::ALL.iter()
}

#[test]
fn model_series_exist_at_zero_before_the_first_request() {
    let program = Setup::new()
        .sleeper("a", 1, "slo_ms = 1000")
        .sleeper("b", 1, "slo_ms = 1000")
        .gpus(1)
        .start();
    let metrics = program.metrics();
    let of_models = declared().filter(|spec| spec.labels.contains(&"model")).map(|spec| spec.name);
    for name in of_models.filter(|name| !NOT_ALWAYS.contains(name)) {
        for model in ["a", "b"] {
            let label = format!("model=\"{model}\"");
            let of_model: Vec<_> =
                metrics.series(name).filter(|(series, _)| series.contains(&label)).collect();
            assert!(!of_model.is_empty(), "{name} of {model} is missing");
            let moved = of_model.iter().find(|(_, value)| *value != 0.0);
            assert!(NOT_ZERO.contains(&name) || moved.is_none(), "{moved:?} before any request");
        }
    }
    assert_eq!(metrics.value("sluice_replicas{model=\"a\",state=\"ready\"}"), 1.0);
}

#[test]
fn every_metric_is_declared_with_type_and_help() {
    let program = Setup::new().sleeper("echo", 1, "slo_ms = 1000").gpus(1).start();
    assert_eq!(program.client().infer("echo", &Body::row()).status, 200);
    let metrics = program.metrics();
    for (name, _) in metrics.types() {
        assert!(metrics.is_described(name), "{name} has no help");
        assert!(declared().any(|declared| declared.name == name), "{name} is not declared");
    }
    for name in declared().map(|spec| spec.name).filter(|name| !NOT_ALWAYS.contains(name)) {
        assert!(metrics.types().any(|(typed, _)| typed == name), "{name} is not exported");
    }
    let reply = program.ask_admin("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
}

#[test]
fn histograms_rise_to_their_count() {
    let program = Setup::new().sleeper("echo", 3, "slo_ms = 20000").gpus(1).start();
    let mut client = program.client();
    for _ in 0..7 {
        assert_eq!(client.infer("echo", &Body::row()).status, 200);
    }
    let metrics = program.metrics();
    for (name, _) in metrics.types().filter(|(_, kind)| *kind == "histogram") {
        let counts = format!("{name}_count{{model=\"echo\"");
        let (_, count) =
            metrics.series(name).find(|(series, _)| series.starts_with(&counts)).unwrap();
        assert_eq!(count, 7.0, "{name}");
        let mut buckets: Vec<(f64, f64)> = metrics
            .series(name)
            .filter_map(|(series, value)| {
                let edge = series.split_once(",le=\"")?.1.split('"').next()?;
                Some((edge.parse().unwrap(), value))
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{name}: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{name}");
    }
}

#[test]
fn histogram_and_counter_agree_at_a_bucket_edge() {
    // Far from the edge on either side: in time by a second, or late and refused.
    let program = Setup::new().sleeper("echo", 3, "slo_ms = 2000").gpus(1).start();
    let mut client = program.client();
    for _ in 0..5 {
        assert_eq!(client.infer("echo", &Body::row()).status, 200);
    }
    let metrics = program.metrics();
    assert_eq!(metrics.value("sluice_objective_seconds{model=\"echo\"}"), 2.0);
    assert_eq!(metrics.value("sluice_objective_target_ratio{model=\"echo\"}"), 0.99);
    let within = "sluice_requests_within_objective_total{model=\"echo\"}";
    let edge = "sluice_request_duration_seconds_bucket{model=\"echo\",le=\"2\"}";
    assert_eq!(metrics.value(within), metrics.value(edge));
    assert!(metrics.types().all(|(_, kind)| kind != "summary"), "summaries do not add up");
}

#[test]
fn batch_sizes_close_reasons_and_limits_are_exposed() {
    let settings = "slo_ms = 60000\nmax_batch = 4\nbatching = \"deadline\"";
    let program = Setup::new().sleeper("slow", 20, settings).gpus(1).start();
    program.signal_executor(Signal::STOP);
    let mut clients: Vec<_> = (0..13).map(|_| program.client()).collect();
    clients.iter_mut().for_each(|client| client.send_infer("slow", &Body::row()));
    eventually("all have come", || {
        let dispatch = &program.state("slow")["dispatch"];
        let here = dispatch["waiting"].as_u64().unwrap() + dispatch["in_flight"].as_u64().unwrap();
        (here == 13).then_some(())
    });
    program.signal_executor(Signal::CONT);
    clients.iter_mut().for_each(|client| assert_eq!(client.receive().status, 200));
    let metrics = program.metrics();
    let rows = metrics.value("sluice_batch_rows_sum{model=\"slow\"}");
    let batches = metrics.value("sluice_batch_rows_count{model=\"slow\"}");
    let closed: f64 = metrics.series("sluice_batches_total").map(|(_, count)| count).sum();
    assert_eq!((rows, closed), (13.0, batches));
    assert_eq!(metrics.value("sluice_batch_rows_bucket{model=\"slow\",le=\"4\"}"), batches);
    assert!(metrics.value("sluice_batches_total{model=\"slow\",closed_by=\"full\"}") >= 1.0);
    let (_, limit) = metrics.series("sluice_batch_limit_rows").next().unwrap();
    // The former names, for one release.
    assert_eq!(metrics.value("sluice_batch_requests_sum{model=\"slow\"}"), rows);
    assert_eq!(metrics.value("sluice_batch_requests_count{model=\"slow\"}"), batches);
    assert_eq!(metrics.series("sluice_batch_limit_requests").next().unwrap().1, limit);
    let told = &program.state("slow")["dispatch"]["limits"][0];
    assert_eq!(told["rows"].as_f64(), Some(limit));
    assert!((1.0..=4.0).contains(&limit), "{limit}");
    let rule = if limit < 4.0 { "aimd" } else { "max_batch" };
    assert_eq!(told["set_by"], rule, "{told}");
}

/// What was sent to `slow`, and how many of it.
struct Sent {
    requests: u64,
    served: u64,
    invalid: u64,
}

fn serve_some(program: &Program) -> Sent {
    let mut client = program.client();
    for index in 0..10 {
        let data = count_from(index as f32, 1);
        assert_eq!(client.infer("slow", &Body::binary(&data)).numbers(), data);
    }
    let bad = Body { headers: Vec::new(), bytes: b"{".to_vec() };
    for _ in 0..4 {
        assert_eq!(client.infer("slow", &bad).status, 400);
    }
    assert_eq!(client.infer("nobody", &Body::row()).status, 404);
    Sent { requests: 14, served: 10, invalid: 4 }
}

/// Sends a crowd of which half leaves; returns the statuses of those that stayed.
fn lose_some(program: &Program, crowd: usize) -> Vec<u16> {
    let before = program.metrics().ended_in_all("slow");
    let mut clients: Vec<_> = (0..crowd).map(|_| program.client()).collect();
    clients.iter_mut().for_each(|client| client.send_infer("slow", &Body::row()));
    // Who leaves before being looked at has, to the program, not been there.
    eventually("all have come", || {
        let dispatch = &program.state("slow")["dispatch"];
        let here = dispatch["waiting"].as_u64().unwrap() + dispatch["in_flight"].as_u64().unwrap();
        let gone = program.metrics().ended_in_all("slow") - before;
        (here + gone >= crowd as u64).then_some(())
    });
    let mut stay = clients.split_off(crowd / 2);
    drop(clients);
    stay.iter_mut().map(|client| client.receive().status).collect()
}

#[test]
fn each_request_ends_exactly_once_whatever_happens_to_it() {
    let settings = "slo_ms = 3000\nmax_batch = 2";
    let program = Setup::new().sleeper("slow", 50, settings).gpus(1).start();
    let Sent { mut requests, served, invalid } = serve_some(&program);
    let metrics = program.metrics();
    assert_eq!(metrics.ended("slow", "served"), served);
    assert_eq!(metrics.ended("slow", "refused"), invalid);
    assert_eq!(metrics.refused("slow", "invalid"), invalid);

    let statuses = lose_some(&program, 200);
    requests += 200;
    program.signal_executor(Signal::KILL);
    let mut dying: Vec<_> = (0..20).map(|_| program.client()).collect();
    dying.iter_mut().for_each(|client| client.send_infer("slow", &Body::row()));
    let last: Vec<u16> = dying.iter_mut().map(|client| client.receive().status).collect();
    requests += 20;
    program.wait_idle("slow");

    let metrics = eventually("all have ended", || {
        let metrics = program.metrics();
        (metrics.ended_in_all("slow") >= requests).then_some(metrics)
    });
    assert_eq!(metrics.ended_in_all("slow"), requests, "{statuses:?} {last:?}");
    let reasons = ["overloaded", "quota", "too_late", "no_replica", "invalid"];
    let refused: u64 = reasons.iter().map(|reason| metrics.refused("slow", reason)).sum();
    assert_eq!(refused, metrics.ended("slow", "refused"));
    let within = metrics.value("sluice_requests_within_objective_total{model=\"slow\"}") as u64;
    assert!(within <= metrics.ended("slow", "served"), "{within} within the objective");
    assert!(metrics.ended("slow", "abandoned") <= 100);
    let seen = statuses.iter().chain(&last);
    let failed = seen.filter(|status| **status == 500).count() as u64;
    assert_eq!(metrics.ended("slow", "failed"), failed, "{statuses:?} {last:?}");
}

#[test]
fn queue_length_and_age_are_shown_while_nothing_finishes() {
    let settings = "slo_ms = 60000\nmax_batch = 1";
    let program = Setup::new().sleeper("slow", 20, settings).gpus(1).start();
    program.signal_executor(Signal::STOP);
    let mut clients: Vec<_> = (0..5).map(|_| program.client()).collect();
    clients.iter_mut().for_each(|client| client.send_infer("slow", &Body::row()));
    let waiting = "sluice_queue_requests{model=\"slow\"}";
    let age = "sluice_queue_oldest_age_seconds{model=\"slow\"}";
    let first = eventually("some wait", || {
        let metrics = program.metrics();
        (metrics.value(waiting) >= 3.0).then(|| metrics.value(age))
    });
    assert!(first > 0.0);
    eventually("the age grows", || (program.metrics().value(age) > first).then_some(()));
    program.signal_executor(Signal::CONT);
    clients.iter_mut().for_each(|client| assert_eq!(client.receive().status, 200));
    program.wait_idle("slow");
    let metrics = program.metrics();
    assert_eq!((metrics.value(waiting), metrics.value(age)), (0.0, 0.0));
    assert_eq!(json!(metrics.ended("slow", "served")), program.stats("slow")["inference_count"]);
}

impl Program {
    fn signal_executor(&self, signal: Signal) {
        process::signal(self.executors()[0], signal);
    }
}

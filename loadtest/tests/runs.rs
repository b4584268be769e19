//! Whole runs against a real server on this machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{sync::atomic::AtomicBool, time::Duration};

use common::{Act, Server};
use loadtest::{
    engine::{self, Control, Measured},
    error::LoadError,
    plan::{Pacing, Plan},
    prepare::prepare,
    report::{Report, Title},
    scenario::{Scenario, StreamSpec},
    table,
};

const STALL: Duration = Duration::from_secs(1);

fn scenario(rate_rps: f64, arrivals: &str) -> Scenario {
    let stream = StreamSpec {
        rate_rps: Some(rate_rps),
        arrivals: Some(arrivals.to_owned()),
        ..StreamSpec::default()
    };
    Scenario { duration_s: 1.0, warmup_s: 0.0, grace_s: 2.0, ..Scenario::single(stream) }
}

fn measure(plan: &Plan) -> Measured {
    let stop = AtomicBool::new(false);
    engine::run(plan, &mut Control { stop: &stop, tell: &mut |_| () }).unwrap()
}

fn report(plan: &Plan) -> Report {
    let title = Title { scenario: "test".to_owned(), url: "here".to_owned() };
    Report::new(title, plan, &measure(plan))
}

fn open(scenario: &Scenario, server: &Server) -> Report {
    report(&prepare(scenario, &server.url(), Pacing::Open).unwrap())
}

/// The first request is the one that tries the server out.
fn stalls_at(request: usize) -> impl Fn(usize) -> Act + Send + Sync {
    move |number| if number == request { Act::Stall(STALL) } else { Act::Status(200) }
}

/// Three seconds, one of which the server stalls.
fn stalling() -> Scenario {
    Scenario { duration_s: 3.0, ..scenario(200.0, "constant") }
}

#[test]
fn open_loop_shows_a_one_second_stall_in_its_p99() {
    let server = Server::start(stalls_at(100));
    let report = open(&stalling(), &server);
    let stream = &report.streams[0];
    assert_eq!(stream.ends.offered, 600);
    // A third of the requests were due while it stalled, the first of them for all of it.
    assert!(stream.latency.p99_ms > 900.0, "{:?}", stream.latency);
    assert!(stream.latency.p90_ms > 600.0, "{:?}", stream.latency);
}

#[test]
fn a_closed_loop_hides_the_same_stall() {
    let server = Server::start(stalls_at(100));
    let plan = prepare(&stalling(), &server.url(), Pacing::Closed { clients: 2 });
    let report = report(&plan.unwrap());
    let latency = report.streams[0].latency;
    assert!(latency.max_ms > 900.0, "the stall did happen: {latency:?}");
    assert!(latency.p99_ms < 500.0, "{latency:?} over {}", report.total.offered);
    assert_eq!(report.pacing, "closed");
    assert!(table::render(&report).contains("CLOSED LOOP of 2"));
}

#[test]
fn every_request_ends_in_exactly_one_way() {
    let server = Server::start(|number| match number % 6 {
        0 => Act::Status(200),
        1 => Act::Status(503),
        2 => Act::Status(429),
        3 => Act::Status(504),
        4 => Act::Status(500),
        _ => Act::Close,
    });
    let report = open(&scenario(600.0, "constant"), &server);
    let ends = report.streams[0].ends;
    assert_eq!(ends.offered, 600);
    let parts = ends.in_time + ends.late + ends.refused + ends.too_late + ends.failed;
    assert_eq!(parts, ends.offered, "{ends:?}");
    for (found, wanted) in [(ends.refused, 200), (ends.too_late, 100), (ends.failed, 100)] {
        assert!(u64::abs_diff(found, wanted) <= 1, "{ends:?}");
    }
    assert_eq!(server.asked(), 601, "the requests, and the one that tried the server out");
}

#[test]
fn a_connection_that_closes_without_a_word_costs_no_request() {
    let server = Server::start(|number| match number % 5 {
        4 => Act::CloseSilently,
        _ => Act::Status(200),
    });
    let report = open(&scenario(300.0, "poisson"), &server);
    assert_eq!(report.streams[0].ends.failed, 0, "{:?}", report.streams[0].replies);
}

#[test]
fn dropped_request_fails_and_ignored_request_is_unanswered() {
    let server = Server::start(|number| match number {
        50..60 => Act::Drop,
        80..83 => Act::Ignore,
        _ => Act::Status(200),
    });
    let mut scenario = scenario(200.0, "constant");
    scenario.grace_s = 0.2;
    let report = open(&scenario, &server);
    let stream = &report.streams[0];
    assert_eq!(stream.replies.get("unanswered"), Some(&3), "{:?}", stream.replies);
    // Each may be sent again once if its connection had worked before.
    let broken = stream.replies.get("connection broken").copied().unwrap_or(0);
    assert!((5..=10).contains(&broken), "{:?}", stream.replies);
    assert_eq!(stream.ends.failed, broken + 3);
}

#[test]
fn a_client_short_of_connections_says_that_it_was_the_limit() {
    let server = Server::start(stalls_at(50));
    let mut scenario = scenario(200.0, "constant");
    scenario.connections = 2;
    let report = open(&scenario, &server);
    assert!(report.client.limited);
    assert!(report.client.waited_for_connection > 20, "{:?}", report.client);
    assert!(report.streams[0].latency.p99_ms > 900.0, "waiting counts from the schedule");
    assert!(table::render(&report).contains("THE CLIENT ITSELF WAS THE LIMIT"));
}

#[test]
fn warm_up_is_sent_but_not_counted() {
    let server = Server::start(|_| Act::Status(200));
    let mut scenario = scenario(200.0, "constant");
    scenario.warmup_s = 0.5;
    scenario.duration_s = 0.5;
    let report = open(&scenario, &server);
    assert_eq!(report.total.offered, 100);
    assert!(server.asked() > 150, "asked {}", server.asked());
}

#[test]
fn the_objective_is_the_routers_unless_stated() {
    let server = Server::start(|_| Act::Status(200));
    let stated = |slo_ms, target| {
        let stream = StreamSpec { slo_ms, target, ..StreamSpec::default() };
        let plan = prepare(&Scenario::single(stream), &server.url(), Pacing::Open).unwrap();
        let objective = plan.streams[0].objective;
        (objective.slo.as_millis(), objective.target)
    };
    assert_eq!(stated(None, None), (40, 0.9));
    assert_eq!(stated(Some(20.0), None), (20, 0.9));
    assert_eq!(stated(Some(20.0), Some(0.5)), (20, 0.5));
}

#[test]
fn the_objective_is_missed_when_too_few_are_in_time() {
    let server = Server::start(|number| Act::Status(if number % 5 == 0 { 503 } else { 200 }));
    let with_target = |target| {
        let mut scenario = scenario(100.0, "constant");
        scenario.duration_s = 0.3;
        scenario.streams[0].target = Some(target);
        scenario.streams[0].slo_ms = Some(5_000.0);
        open(&scenario, &server).objective_met
    };
    assert!(with_target(0.7));
    assert!(!with_target(0.9));
}

#[test]
fn invalid_request_stops_the_run_with_the_servers_message() {
    let server = Server::start(|_| Act::Status(200));
    let folder = std::env::temp_dir().join(format!("sluice-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("wrong.json");
    let request = r#"{"id":"wrong","inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}"#;
    std::fs::write(&file, request).unwrap();
    let stream = StreamSpec { input: Some(file), ..StreamSpec::default() };
    let error = prepare(&Scenario::single(stream), &server.url(), Pacing::Open).unwrap_err();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(error.to_string(), "m was answered 400: input \"wrong\" is wrong");
    assert!(!error.is_usage());
}

#[test]
fn a_server_that_is_not_there_is_an_error_before_the_run() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = prepare(&scenario(1.0, "poisson"), &address, Pacing::Open).unwrap_err();
    assert!(matches!(error, LoadError::Unreachable { .. }), "{error}");
}

#[test]
fn trace_is_scaled_to_the_rate_and_ends_with_its_last_arrival() {
    let server = Server::start(|_| Act::Status(200));
    let mut scenario = Scenario::find("trace").unwrap();
    scenario.set_model("m").unwrap();
    scenario.set_rate(4_000.0);
    scenario.warmup_s = 0.0;
    let plan = prepare(&scenario, &server.url(), Pacing::Open).unwrap();
    let seconds = plan.length.as_secs_f64();
    assert!((0.6..0.8).contains(&seconds), "2867 arrivals at 4000/s take {seconds} s");
    assert_eq!(report(&plan).total.offered, 2_867);
}

#[test]
fn stopping_early_reports_what_was_measured() {
    let server = Server::start(|_| Act::Status(200));
    let mut scenario = scenario(200.0, "constant");
    scenario.duration_s = 60.0;
    let plan = prepare(&scenario, &server.url(), Pacing::Open).unwrap();
    let stop = AtomicBool::new(true);
    let measured = engine::run(&plan, &mut Control { stop: &stop, tell: &mut |_| () }).unwrap();
    assert!(measured.length < Duration::from_secs(10), "{:?}", measured.length);
    assert!(measured.tallies[0].counts.offered() > 10);
}

#[test]
fn a_report_reads_back_as_it_was_written() {
    let server = Server::start(|number| Act::Status(if number % 3 == 0 { 503 } else { 200 }));
    let report = open(&scenario(200.0, "poisson"), &server);
    let file = std::env::temp_dir().join(format!("sluice-report-{}.json", std::process::id()));
    std::fs::write(&file, report.to_json()).unwrap();
    let back = Report::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(back.to_json(), report.to_json());
}

#[test]
fn plan_at_another_rate_keeps_shares_and_speeds_up_traces() {
    let server = Server::start(|_| Act::Status(200));
    let mut drawn = scenario(100.0, "poisson");
    drawn.streams.push(StreamSpec { rate_rps: Some(300.0), ..StreamSpec::default() });
    let plan = prepare(&drawn, &server.url(), Pacing::Open).unwrap().at_rate(1_000.0);
    let rates: Vec<f64> = plan.streams.iter().map(|s| s.source.rate_rps(plan.length)).collect();
    assert_eq!(rates, [250.0, 750.0]);

    let mut recorded = Scenario::find("trace").unwrap();
    recorded.set_model("m").unwrap();
    let plan = prepare(&recorded, &server.url(), Pacing::Open).unwrap();
    let faster = plan.at_rate(2.0 * plan.rate_rps());
    let ratio = plan.length.as_secs_f64() / faster.length.as_secs_f64();
    assert!((ratio - 2.0).abs() < 1e-6, "{ratio}");
}

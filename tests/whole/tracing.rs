//! Where a request's time went, as a collector is told.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    client::{Body, Client},
    process,
    program::Program,
    setup::Setup,
    wait::{PATIENCE, eventually},
};

const CALLER: &str = "b7ad6b7169203331";

/// Takes spans as OTLP over HTTP has them.
struct Collector {
    address: SocketAddr,
    taken: Receiver<Value>,
    spans: Vec<Value>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, taken) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                take(stream.unwrap(), &sender);
            }
        });
        Self { address, taken, spans: Vec::new() }
    }

    /// Waits until so many spans have come, and returns them.
    #[track_caller]
    fn wait(&mut self, count: usize) -> &[Value] {
        while self.spans.len() < count {
            let body = self.taken.recv_timeout(PATIENCE).unwrap_or_else(|_| {
                panic!("only {} spans of {count}: {:?}", self.spans.len(), self.spans)
            });
            let resource = &body["resourceSpans"][0];
            let name = &resource["resource"]["attributes"][0];
            assert_eq!(
                (&name["key"], &name["value"]["stringValue"]),
                (&"service.name".into(), &"sluice".into())
            );
            let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
            self.spans.extend(spans.iter().cloned());
        }
        &self.spans
    }

    fn program(&self, sample_ratio: f64) -> Program {
        let address = self.address;
        Setup::new()
            .router("drain_delay_s = 0")
            .sleeper("slow", 20, "slo_ms = 60000\nmax_batch = 4\nbatching = \"deadline\"")
            .tables(&format!(
                "[tracing]\notlp_endpoint = \"http://{address}\"\nsample_ratio = {sample_ratio}"
            ))
            .gpus(1)
            .start()
    }
}

fn take(mut stream: TcpStream, sender: &Sender<Value>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
    assert_eq!(lines.next().unwrap(), "POST /v1/traces HTTP/1.1");
    let headers: Vec<String> = lines.map(|line| line.to_lowercase()).collect();
    assert!(headers.contains(&"content-type: application/json".to_owned()), "{headers:?}");
    let length = headers.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    // Nobody listens any more once the test is over.
    let _ = sender.send(serde_json::from_slice(&body).unwrap());
}

fn traced(trace: u32, flags: &str) -> Body {
    let parent = format!("00-{trace:032x}-{CALLER}-{flags}");
    Body::row().with("traceparent", &parent).with("tracestate", "vendor=1")
}

fn named<'s>(spans: &'s [Value], name: &str) -> Vec<&'s Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

/// A span's trace and its own id, which is what links name.
fn identity(span: &Value) -> (String, String) {
    let text = |key: &str| span[key].as_str().unwrap().to_owned();
    (text("traceId"), text("spanId"))
}

fn links(span: &Value) -> Vec<(String, String)> {
    span["links"].as_array().unwrap().iter().map(identity).collect()
}

fn nanos(span: &Value, key: &str) -> u64 {
    span[key].as_str().unwrap().parse().unwrap()
}

fn attribute<'s>(span: &'s Value, key: &str) -> &'s Value {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    &found.unwrap_or_else(|| panic!("no {key} in {span}"))["value"]
}

#[test]
fn trace_has_queue_batch_and_executor_under_the_callers_span() {
    let mut collector = Collector::start();
    let program = collector.program(0.0);
    let reply = program.client().infer("slow", &traced(7, "01"));
    assert_eq!(reply.status, 200);
    let spans = collector.wait(4);
    let one =
        |name: &str| named(spans, name).into_iter().next().unwrap_or_else(|| panic!("{spans:?}"));
    let [request, queue, batch, executor] = ["request", "queue", "batch", "executor"].map(one);

    let trace = format!("{:032x}", 7);
    assert!(spans.iter().all(|span| span["traceId"] == trace), "{spans:?}");
    assert_eq!(
        (&request["parentSpanId"], &request["traceState"]),
        (&CALLER.into(), &"vendor=1".into())
    );
    assert_eq!(attribute(request, "sluice.model")["stringValue"], "slow");
    assert_eq!(attribute(request, "http.response.status_code")["intValue"], "200");
    let told = format!("00-{trace}-{}-01", identity(request).1);
    assert_eq!(reply.header("traceresponse"), Some(told.as_str()));

    assert_eq!((&queue["parentSpanId"], links(queue)), (&request["spanId"], vec![identity(batch)]));
    assert_eq!(
        (&batch["parentSpanId"], links(batch)),
        (&request["spanId"], vec![identity(request)])
    );
    assert_eq!(executor["parentSpanId"], batch["spanId"]);
    assert_eq!(attribute(batch, "sluice.slice")["stringValue"], "gpu0:7g@0");
    let compute_us =
        attribute(executor, "sluice.executor.compute_us")["intValue"].as_str().unwrap();
    assert!(compute_us.parse::<u64>().unwrap() >= 20_000, "{compute_us} us of a sleep of 20 ms");

    let (start, end) = ("startTimeUnixNano", "endTimeUnixNano");
    // Within the router time is counted in microseconds.
    assert!(nanos(request, start) - nanos(queue, start) < 1_000, "{spans:?}");
    assert_eq!(nanos(queue, end), nanos(batch, start));
    assert!(nanos(batch, start) <= nanos(executor, start), "{spans:?}");
    assert_eq!(nanos(executor, end), nanos(batch, end));
    assert!(nanos(batch, end) <= nanos(request, end), "{spans:?}");
}

#[test]
fn a_batch_links_to_every_traced_request_in_it() {
    let mut collector = Collector::start();
    let program = collector.program(1.0);
    let executor = program.executors()[0];
    process::signal(executor, Signal::STOP);
    let mut clients: Vec<Client> = (0..6).map(|_| program.client()).collect();
    clients.iter_mut().for_each(|client| client.send_infer("slow", &Body::row()));
    eventually("all have come", || {
        let dispatch = &program.state("slow")["dispatch"];
        let here = dispatch["waiting"].as_u64().unwrap() + dispatch["in_flight"].as_u64().unwrap();
        (here == 6).then_some(())
    });
    process::signal(executor, Signal::CONT);
    clients.iter_mut().for_each(|client| assert_eq!(client.receive().status, 200));
    let batches = program.metrics().value("sluice_batch_rows_count{model=\"slow\"}") as usize;
    let spans = collector.wait(6 * 2 + batches * 2);
    let requests: HashSet<_> = named(spans, "request").into_iter().map(identity).collect();
    assert_eq!(requests.len(), 6, "each has a trace of its own");
    let linked: Vec<_> = named(spans, "batch").into_iter().flat_map(links).collect();
    assert_eq!(linked.len(), 6);
    assert_eq!(linked.into_iter().collect::<HashSet<_>>(), requests);
    assert!(named(spans, "batch").iter().any(|batch| links(batch).len() > 1), "{spans:?}");
}

#[test]
fn a_caller_that_does_not_trace_is_not_traced() {
    let mut collector = Collector::start();
    let program = collector.program(1.0);
    let reply = program.client().infer("slow", &traced(8, "00"));
    assert_eq!((reply.status, reply.header("traceresponse")), (200, None));
    assert_eq!(program.client().infer("slow", &traced(9, "01")).status, 200);
    let nine = format!("{:032x}", 9);
    assert!(collector.wait(4).iter().all(|span| span["traceId"] == nine));
}

#[test]
fn what_was_traced_last_is_sent_before_the_end() {
    let mut collector = Collector::start();
    let mut program = collector.program(1.0);
    assert_eq!(program.client().infer("slow", &Body::row()).status, 200);
    program.signal(Signal::TERM);
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(collector.wait(4).len(), 4);
}

#[test]
fn a_collector_that_is_gone_costs_spans_and_no_request() {
    let collector = Collector::start();
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let program = Collector { address: nowhere, ..collector }.program(1.0);
    assert_eq!(program.client().infer("slow", &Body::row()).status, 200);
    let dropped = "sluice_trace_spans_total{result=\"dropped\"}";
    eventually("the spans are given up", || {
        (program.metrics().value(dropped) >= 4.0).then_some(())
    });
    assert_eq!(program.metrics().value("sluice_trace_spans_total{result=\"exported\"}"), 0.0);
}

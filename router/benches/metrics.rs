//! What recording metrics costs, in CPU of a whole router.
//!
//! Two routers stand in one process, in front of peers that answer at once. The first was made
//! before the process had a recorder, so its metrics lead nowhere. They are driven in turn, and the
//! CPU of the one thread both run on is compared pair by pair. On a busy machine the pairs differ by
//! more than metrics cost, so what is recorded of a request is also timed by itself. Folding what
//! was recorded is counted in both. `cargo bench -p router --bench metrics` prints the table of docs/benchmarks.md.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod client;
mod support;

use std::{error::Error, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use client::Client;
use metrics_exporter_prometheus::PrometheusHandle;
use policy::dispatch::ClosedBy;
use protocol::{
    FromWorker, GpuReport, JOIN_VERSION, ReadyReplica, ReplicaReport, ReplicaState, Report, Shapes,
    SliceReport, TensorShape, WarmPoint,
};
use router::{
    auth::Access,
    config,
    fleet::{Trust, welcome},
    http::{self, ServerState},
    metrics::{self, ModelMetrics, Outcome},
    place,
    registry::Registry,
};
use support::{Samples, peer, thread_cpu};
use tokio::{io::AsyncWriteExt, net::TcpListener};

const PAIRS: usize = 100;
const REQUESTS: usize = 3_000;
const RECORDS: u32 = 20_000;
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches");
const CONFIG: &str = r#"
[router]
access_log = "off"

[[model]]
name = "null"
engine = "synthetic"
profile_csv = "null.csv"
slo_ms = 10000
max_batch = 64
inputs = [{ name = "x", datatype = "FP32", shape = [-1, 1024] }]
outputs = [{ name = "y", datatype = "FP32", shape = [-1, 1] }]

[[worker]]
gpu = "simulated:A100-80GB"
"#;

fn main() -> Result<(), Box<dyn Error>> {
    support::pin(support::ROUTER);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(support::rounds(PAIRS)))
}

async fn measure(pairs: usize) -> Result<(), Box<dyn Error>> {
    let without = start().await?;
    let recorder = metrics::install("bench", "bench")?;
    let with = start().await?;
    let mut client = Client::start(&[without, with])?;
    let (mut plain_us, mut recorded_us, mut cost) = <(Samples, Samples, Samples)>::default();
    // The first pair warms up and is not counted.
    for pair in 0..=pairs {
        let mut each_us = [0.0; 2];
        // Whoever goes second finds warmer caches, so they take turns.
        for turn in [pair % 2, 1 - pair % 2] {
            each_us[turn] = round(&mut client, turn, (turn == 1).then_some(&recorder)).await?;
        }
        if pair > 0 {
            plain_us.push(each_us[0]);
            recorded_us.push(each_us[1]);
            cost.push((each_us[1] / each_us[0] - 1.0) * 100.0);
        }
    }
    let [low, high] = interval(pairs).map(|part| cost.quantile(part));
    let [request_ns, batch_ns] = recording(&recorder, pairs);
    let share = (request_ns + batch_ns) / 10.0 / plain_us.median();
    println!("| | router CPU, us a request |");
    println!("| --- | --- |");
    println!("| without a recorder | {} |", plain_us.spread(2));
    println!("| recording | {} |", recorded_us.spread(2));
    println!(
        "\nThe median of {pairs} pairs of {REQUESTS} requests is {:+.1} %, with 95 % confidence \
         {low:+.1} to {high:+.1} %. By itself, recording takes {request_ns:.0} ns a request and \
         {batch_ns:.0} ns a batch: in batches of one, {share:.2} % of the router's CPU.",
        cost.median(),
    );
    Ok(())
}

/// Nanoseconds that recording a request takes, and a batch.
fn recording(recorder: &PrometheusHandle, rounds: usize) -> [f64; 2] {
    let metrics = ModelMetrics::new("alone");
    let time = Duration::from_millis(3);
    let request = || {
        metrics.dispatched(time);
        metrics.ended(Outcome::Served { took: time, in_time: true });
    };
    let batch = || {
        metrics.sent(8, ClosedBy::Full);
        metrics.limit("gpu0:7g@0", 8);
    };
    let (mut requests, mut batches) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        requests.push(each_ns(recorder, request));
        batches.push(each_ns(recorder, batch));
    }
    [requests.median(), batches.median()]
}

fn each_ns(recorder: &PrometheusHandle, record: impl Fn()) -> f64 {
    let before = thread_cpu();
    (0..RECORDS).for_each(|_| record());
    recorder.run_upkeep();
    (thread_cpu() - before).as_secs_f64() * 1e9 / f64::from(RECORDS)
}

/// Between which parts of the samples the true median lies, 95 times in 100.
fn interval(samples: usize) -> [f64; 2] {
    let half = 0.98 / (samples as f64).sqrt();
    [(0.5 - half).max(0.0), (0.5 + half).min(1.0)]
}

/// Microseconds of CPU per request on this thread, which is the router's.
async fn round(
    client: &mut Client,
    server: usize,
    recorder: Option<&PrometheusHandle>,
) -> Result<f64, Box<dyn Error>> {
    let before = thread_cpu();
    client.drive(server, REQUESTS).await?;
    if let Some(recorder) = recorder {
        recorder.run_upkeep();
    }
    Ok((thread_cpu() - before).as_secs_f64() * 1e6 / REQUESTS as f64)
}

/// A router in front of a peer of its own; where it listens.
async fn start() -> Result<SocketAddr, Box<dyn Error>> {
    let (config, _) = config::parse(Path::new("bench"), CONFIG, Path::new(FOLDER))
        .map_err(|problems| problems.to_string())?;
    let settings = config.router.clone();
    let registry = Registry::start(config)?;
    let fleet = Arc::clone(registry.fleet());
    let access = Access::new(&[], &[]);
    let state = Arc::new(ServerState::new(registry, settings, access, Arc::default()));
    tokio::spawn(place::run(Arc::downgrade(&state)));
    let (theirs, mut ours) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move { welcome(theirs, "bench", &Trust::Everyone, &fleet).await });
    let (token, worker) = (String::new(), "bench".to_owned());
    let join = FromWorker::Join { version: JOIN_VERSION, token, worker };
    for message in [join, FromWorker::Report(Box::new(report(peer::unix(peer::zero)?)))] {
        ours.write_all(&serde_json::to_vec(&message)?).await?;
        ours.write_all(b"\n").await?;
    }
    state.backend.warm().await?;
    // The worker stays connected, and deaf, for the life of the process.
    std::mem::forget(ours);
    let tcp = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = tcp.local_addr()?;
    tokio::spawn(http::serve(tcp, state));
    Ok(address)
}

fn report(address: String) -> Report {
    let shape = |name: &str, width| TensorShape {
        name: name.to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![-1, width],
    };
    let ready = ReadyReplica {
        address,
        token: String::new(),
        signature: Shapes { inputs: vec![shape("x", 1024)], outputs: vec![shape("y", 1)] },
        platform: "null".to_owned(),
        max_batch: 64,
        warmup: [1, 64].map(|batch| WarmPoint { batch, compute_us: vec![1] }).into(),
        load_us: 0,
        memory_bytes: 0,
    };
    let replica = ReplicaReport {
        replica: 1,
        model: "null".to_owned(),
        version: "1".to_owned(),
        digest: 0,
        lane: 0,
        state: ReplicaState::Ready(Box::new(ready)),
    };
    let slice = SliceReport {
        slice: "gpu0:7g@0".to_owned(),
        position: "7g.80gb@0".to_owned(),
        profile: "7g.80gb".to_owned(),
        uuid: Some("MIG-0".to_owned()),
        memory_bytes: None,
        lanes: Vec::new(),
        replicas: vec![replica],
    };
    Report {
        generation: 0,
        leaving: false,
        gpus: vec![GpuReport { slices: vec![slice], ..GpuReport::default() }],
    }
}

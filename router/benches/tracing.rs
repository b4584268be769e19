//! What tracing costs, in CPU of a whole router, off and at one request in a hundred.
//!
//! Two routers stand in one process, in front of peers that answer at once; one of them traces and
//! exports to a collector on the other core. They are driven in turn and compared pair by pair. What
//! a request pays while tracing is off is too little to be seen so, and is timed by itself.
//! `cargo bench -p router --bench tracing` prints the table of docs/benchmarks.md.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod client;
mod support;

use std::{
    error::Error,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use client::Client;
use config::Tracing;
use http::HeaderMap;
use serve::trace::{Build, SpanMetrics, Tracer};
use support::{Samples, router::Running, thread_cpu};
use tokio::time::Instant;

const PAIRS: usize = 100;
const REQUESTS: usize = 3_000;
const LOOKS: u32 = 200_000;
const RATIO: f64 = 0.01;

fn main() -> Result<(), Box<dyn Error>> {
    support::pin(support::ROUTER);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(support::rounds(PAIRS)))
}

async fn measure(pairs: usize) -> Result<(), Box<dyn Error>> {
    let off = support::router::start().await?;
    let on = support::router::start().await?;
    let spans = trace(&on)?;
    let mut client = Client::start(&[off.address, on.address])?;
    let (mut off_us, mut on_us, mut cost) = <(Samples, Samples, Samples)>::default();
    // The first pair warms up and is not counted.
    for pair in 0..=pairs {
        let mut each_us = [0.0; 2];
        // Whoever goes second finds warmer caches, so they take turns.
        for turn in [pair % 2, 1 - pair % 2] {
            let before = thread_cpu();
            client.drive(turn, REQUESTS).await?;
            each_us[turn] = (thread_cpu() - before).as_secs_f64() * 1e6 / REQUESTS as f64;
        }
        if pair > 0 {
            off_us.push(each_us[0]);
            on_us.push(each_us[1]);
            cost.push((each_us[1] / each_us[0] - 1.0) * 100.0);
        }
    }
    let [low, high] = cost.interval();
    let totals = spans.totals();
    println!("| tracing | router CPU, us a request |\n| --- | --- |");
    println!("| off | {} |", off_us.spread(2));
    println!("| {} % of requests | {} |", RATIO * 100.0, on_us.spread(2));
    println!(
        "\nThe median of {pairs} pairs of {REQUESTS} requests is {:+.1} %, with 95 % confidence \
         {low:+.1} to {high:+.1} %; {} spans were exported and {} dropped. While tracing is off, a \
         request pays {:.1} ns.",
        cost.median(),
        totals.exported,
        totals.dropped,
        looking_ns(&off, pairs),
    );
    Ok(())
}

/// Has `router` trace to a collector of its own.
fn trace(router: &Running) -> io::Result<Arc<SpanMetrics>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let authority = listener.local_addr()?.to_string();
    thread::spawn(move || {
        support::pin(support::OTHERS);
        listener.incoming().flatten().for_each(|stream| drop(take(stream)));
    });
    let spans = Arc::new(SpanMetrics::default());
    let settings = Tracing { authority, path: "/v1/traces".to_owned(), sample_ratio: RATIO };
    let build = Build { version: "bench".to_owned(), revision: "bench".to_owned() };
    let tracer = Tracer::start(&settings, &build, Arc::clone(&spans));
    router.state.tracer.store(Some(Arc::new(tracer)));
    Ok(spans)
}

/// Reads one export and takes it.
fn take(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    for line in reader.by_ref().lines() {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap_or(0);
        }
    }
    io::copy(&mut reader.take(length), &mut io::sink())?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
}

/// Nanoseconds that a look for a tracer takes where there is none.
fn looking_ns(router: &Running, rounds: usize) -> f64 {
    let (headers, arrived) = (HeaderMap::new(), Instant::now());
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let before = thread_cpu();
        for _ in 0..LOOKS {
            let tracer = router.state.tracer.load();
            let begun = tracer.as_ref().and_then(|tracer| tracer.begin(&headers, arrived));
            assert!(std::hint::black_box(begun).is_none());
        }
        samples.push((thread_cpu() - before).as_secs_f64() * 1e9 / f64::from(LOOKS));
    }
    samples.median()
}

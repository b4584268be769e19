//! What metrics cost: recording, in CPU of a whole router, and the page of a large fleet.
//!
//! A router stands in front of a peer that answers at once; the CPU of its thread is counted over
//! many requests. What is recorded of a request and of a batch is timed by itself, since on a busy
//! machine two routers, with and without, differ by more than metrics cost. It fails if recording,
//! in batches of one, takes more than a hundredth of the router's CPU.
//! `cargo bench -p router --bench metrics` prints the table of docs/benchmarks.md.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod client;
mod support;

use std::{error::Error, sync::Arc, time::Duration};

use client::Client;
use policy::dispatch::ClosedBy;
use router::metrics::Format;
use serve::count::{ModelMetrics, Outcome, TenantMetrics};
use support::{Samples, large, thread_cpu};

const ROUNDS: usize = 100;
const REQUESTS: usize = 3_000;
const RECORDS: u32 = 20_000;
const MOST_PERCENT: f64 = 1.0;

fn main() -> Result<(), Box<dyn Error>> {
    support::pin(support::ROUTER);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(support::rounds(ROUNDS)))
}

async fn measure(rounds: usize) -> Result<(), Box<dyn Error>> {
    let router = support::router::start().await?;
    let mut client = Client::start(&[router.address])?;
    let mut whole_us = Samples::default();
    // The first round warms up and is not counted.
    for round in 0..=rounds {
        let before = thread_cpu();
        client.drive(0, REQUESTS).await?;
        if round > 0 {
            whole_us.push((thread_cpu() - before).as_secs_f64() * 1e6 / REQUESTS as f64);
        }
    }
    let [request_ns, batch_ns] = recording(rounds);
    let share = (request_ns + batch_ns) / 10.0 / whole_us.median();
    println!("| | |\n| --- | --- |");
    println!("| router CPU, us a request | {} |", whole_us.spread(2));
    println!("| recording a request, ns | {request_ns:.0} |");
    println!("| recording a batch, ns | {batch_ns:.0} |");
    println!("| recording both, share of the router's CPU | {share:.2} % |");
    for (name, format) in [("text", Format::Text), ("protobuf", Format::Protobuf)] {
        let (ms, bytes) = scrape(format, rounds);
        println!("| {name} page of 200 models and 500 slices, ms | {} |", ms.spread(1));
        println!("| its size, KiB | {} |", bytes >> 10);
    }
    if share > MOST_PERCENT {
        return Err(format!("recording takes {share:.2} % of the router's CPU").into());
    }
    Ok(())
}

/// Nanoseconds that recording a request takes, and a batch.
fn recording(rounds: usize) -> [f64; 2] {
    let (metrics, tenant) = (ModelMetrics::default(), Arc::new(TenantMetrics::default()));
    let request = |number: u32| {
        let time = Duration::from_micros(u64::from(number % 10_000));
        let underway = tenant.begin();
        tenant.asked(1);
        metrics.dispatched(time);
        metrics.ended(Outcome::Served { took: time, in_time: true });
        underway.told(None);
    };
    let batch = |number: u32| metrics.sent(number % 64 + 1, ClosedBy::Full);
    let (mut requests, mut batches) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        requests.push(each_ns(request));
        batches.push(each_ns(batch));
    }
    [requests.median(), batches.median()]
}

fn each_ns(record: impl Fn(u32)) -> f64 {
    let before = thread_cpu();
    (0..RECORDS).for_each(record);
    (thread_cpu() - before).as_secs_f64() * 1e9 / f64::from(RECORDS)
}

/// Milliseconds that writing a large fleet's page takes, and its bytes.
fn scrape(format: Format, rounds: usize) -> (Samples, usize) {
    let fleet = large::Fleet::new();
    let (mut ms, mut bytes) = (Samples::default(), 0);
    for _ in 0..rounds {
        let before = thread_cpu();
        bytes = fleet.page(format).len();
        ms.push((thread_cpu() - before).as_secs_f64() * 1e3);
    }
    (ms, bytes)
}

//! What metrics cost: recording, in CPU of a whole router, and the page of a large fleet.
//!
//! A router stands in front of a peer that answers at once; the CPU of its thread is counted over
//! many requests. What is recorded of a request in a batch of its own, and draining it, is timed with
//! recording and without, since on a busy machine two routers, with and without, differ by more than
//! metrics cost. It fails if recording takes more than a hundredth of the router's CPU.
//! `cargo bench -p router --bench metrics` prints the table of docs/benchmarks.md.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod client;
mod support;

use std::{error::Error, hint::black_box, sync::Arc, time::Duration};

use client::Client;
use policy::dispatch::ClosedBy;
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
        router.state.backend.drain_histograms();
    }
    let Cost { request, batch, drain } = recording(rounds);
    let share = (request + batch + drain) / 10.0 / whole_us.median();
    println!("| | |\n| --- | --- |");
    println!("| router CPU, us a request | {} |", whole_us.spread(2));
    println!("| recording a request, ns | {request:.0} |");
    println!("| recording a batch, ns | {batch:.0} |");
    println!("| draining both, ns | {drain:.0} |");
    println!("| all three, share of the router's CPU | {share:.2} % |");
    let (ms, bytes) = scrape(rounds);
    println!("| page of 200 models and 500 slices, ms | {} |", ms.spread(1));
    println!("| its size, KiB | {} |", bytes >> 10);
    if share > MOST_PERCENT {
        return Err(format!("recording takes {share:.2} % of the router's CPU").into());
    }
    Ok(())
}

/// Nanoseconds that metrics take of a request in a batch of its own.
struct Cost {
    request: f64,
    batch: f64,
    drain: f64,
}

fn recording(rounds: usize) -> Cost {
    let (metrics, tenant) = (ModelMetrics::new("null"), Arc::new(TenantMetrics::default()));
    let took = metrics.batch_time("7g.80gb");
    let time = |number: u32| Duration::from_micros(u64::from(number % 10_000));
    let request = |number: u32| {
        let time = time(number);
        let underway = tenant.begin();
        tenant.asked(1);
        metrics.dispatched(time);
        metrics.ended(Outcome::Served { took: time, in_time: true });
        underway.told(None);
    };
    let batch = |number: u32| {
        metrics.sent(number % 64 + 1, ClosedBy::Full);
        took.record(time(number).as_secs_f64());
    };
    let without = |number: u32| {
        black_box((time(number), number % 64));
    };
    let [mut requests, mut batches, mut drains] = [(); 3].map(|()| Samples::default());
    for _ in 0..rounds {
        let nothing = each_ns(without);
        requests.push(each_ns(request) - nothing);
        batches.push(each_ns(batch) - nothing);
        let before = thread_cpu();
        metrics.drain();
        drains.push((thread_cpu() - before).as_secs_f64() * 1e9 / f64::from(RECORDS));
    }
    Cost { request: requests.median(), batch: batches.median(), drain: drains.median() }
}

fn each_ns(record: impl Fn(u32)) -> f64 {
    let before = thread_cpu();
    (0..RECORDS).for_each(record);
    (thread_cpu() - before).as_secs_f64() * 1e9 / f64::from(RECORDS)
}

/// Milliseconds that writing a large fleet's page takes, and its bytes.
fn scrape(rounds: usize) -> (Samples, usize) {
    let fleet = large::Fleet::new();
    let (mut ms, mut bytes) = (Samples::default(), 0);
    for _ in 0..rounds {
        let before = thread_cpu();
        bytes = fleet.page().len();
        ms.push((thread_cpu() - before).as_secs_f64() * 1e3);
    }
    (ms, bytes)
}

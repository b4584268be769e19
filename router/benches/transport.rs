//! What one batch costs to send and get back, by the ways an executor could be reached.
//!
//! Each way carries the same header and the same tensors of 4 KiB; the peer answers at once with as
//! many bytes. `cargo bench -p router --bench transport` prints the table of docs/benchmarks.md.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod support;
mod ways;

use std::{error::Error, time::Duration};

use bytes::Bytes;
use protocol::{Batch, Part, TensorHead, ToExecutor};
use support::{Samples, process_cpu, thread_cpu};
use tokio::time::Instant;
use ways::Way;

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(100);
const SIZES: [u32; 3] = [1, 8, 32];
const TENSOR_BYTES: usize = 4096;

#[derive(Default)]
struct Measured {
    batches_per_s: Samples,
    router_us: Samples,
    both_us: Samples,
    against_first: Samples,
}

fn main() -> Result<(), Box<dyn Error>> {
    support::pin(support::ROUTER);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(support::rounds(ROUNDS)))
}

async fn measure(rounds: usize) -> Result<(), Box<dyn Error>> {
    let mut ways = Way::all().await?;
    println!(
        "| requests | way | batches/s | router CPU, us a batch | both sides' CPU, us a batch | \
         batches/s against ours |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    for size in SIZES {
        let (message, body) = batch(size);
        let mut measured: Vec<Measured> = ways.iter().map(|_| Measured::default()).collect();
        for _ in 0..rounds {
            let mut first = None;
            for (way, measured) in ways.iter_mut().zip(&mut measured) {
                let rate = round(way, &message, &body, measured).await?;
                measured.against_first.push(rate / *first.get_or_insert(rate));
            }
        }
        for (way, measured) in ways.iter().zip(&measured) {
            println!(
                "| {size} | {} | {} | {} | {} | {} |",
                way.name(),
                measured.batches_per_s.spread(0),
                measured.router_us.spread(1),
                measured.both_us.spread(1),
                measured.against_first.spread(2),
            );
        }
    }
    println!("\nMedian of {rounds} alternating rounds of {ROUND:?} (least to most).");
    Ok(())
}

/// Exchanges one batch after another for a while; batches per second.
async fn round(
    way: &mut Way,
    message: &ToExecutor,
    body: &[Bytes],
    measured: &mut Measured,
) -> Result<f64, Box<dyn Error>> {
    let wanted: usize = body.iter().map(Bytes::len).sum();
    let (began, router_before, both_before) = (Instant::now(), thread_cpu(), process_cpu());
    let mut batches = 0.0;
    while began.elapsed() < ROUND {
        let came = way.exchange(message, body).await?;
        assert_eq!(came, wanted, "{} lost bytes", way.name());
        batches += 1.0;
    }
    let rate = batches / began.elapsed().as_secs_f64();
    let each_us = |cpu: Duration| cpu.as_secs_f64() * 1e6 / batches;
    measured.batches_per_s.push(rate);
    measured.router_us.push(each_us(thread_cpu() - router_before));
    measured.both_us.push(each_us(process_cpu() - both_before));
    Ok(rate)
}

fn batch(size: u32) -> (ToExecutor, Vec<Bytes>) {
    let tensor = Bytes::from(vec![7; TENSOR_BYTES]);
    let head = TensorHead { name: "x".into(), datatype: "FP32".into(), tail: vec![1024] };
    let part = Part { rows: 1, bytes: vec![TENSOR_BYTES as u32] };
    let requests = vec![part; size as usize];
    let batch = Batch { id: 1, replica: 1, inputs: vec![head], requests };
    (ToExecutor::Batch(batch), vec![tensor; size as usize])
}

//! How far off timers ring: the kernel's, as the dispatcher uses it, against the runtime's.
//!
//! `cargo bench -p router --bench timer` prints the table of docs/benchmarks.md.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod support;

use std::{io, time::Duration};

use serve::{alarm::Alarm, clock::Clock};
use support::Samples;
use tokio::time::{Instant, sleep};

const ROUNDS: usize = 500;
const WAITS_US: [u64; 3] = [500, 2_000, 5_000];

fn main() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(support::rounds(ROUNDS)))
}

async fn measure(rounds: usize) -> io::Result<()> {
    println!("| wait | `Alarm` late by, median | 99th | `tokio::time::sleep` median | 99th |");
    println!("| --- | --- | --- | --- | --- |");
    let (alarm, clock) = (Alarm::new()?, Clock::start());
    for wait in WAITS_US.map(Duration::from_micros) {
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            let began = Instant::now();
            let now = clock.now();
            let at = now + wait;
            alarm.set(at, now);
            while clock.now() < at {
                alarm.rings().await?;
            }
            ours.push(late_us(began, wait));
            let began = Instant::now();
            sleep(wait).await;
            theirs.push(late_us(began, wait));
        }
        let cells = [&ours, &theirs].map(|samples| {
            format!("{:.0} us | {:.0} us", samples.median(), samples.quantile(0.99))
        });
        println!("| {} ms | {} |", wait.as_secs_f64() * 1e3, cells.join(" | "));
    }
    println!("\n{rounds} waits of each kind, alternating.");
    Ok(())
}

fn late_us(began: Instant, wait: Duration) -> f64 {
    began.elapsed().saturating_sub(wait).as_secs_f64() * 1e6
}

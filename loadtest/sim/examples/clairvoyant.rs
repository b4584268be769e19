//! Prints the share of a Poisson stream that one could serve in time who knew all arrivals.
//!
//! `clairvoyant FIXED_MS ROW_MS MAX_BATCH OBJECTIVE_MS RATE_RPS`, for one replica that takes so many
//! milliseconds for a batch and more for each of its rows.

use std::{process::ExitCode, time::Duration};

use sim::{
    clairvoyant::{most_in_time, poisson},
    curve::Curve,
};

const SECONDS: f64 = 10.0;
const SEED: u64 = 1;

#[expect(clippy::print_stdout, reason = "the number is what this program is for")]
#[expect(clippy::print_stderr, reason = "the last word of a program that cannot go on")]
fn main() -> ExitCode {
    let arguments = std::env::args().skip(1);
    let numbers: Result<Vec<f64>, _> = arguments.map(|text| text.parse()).collect();
    let Ok([fixed_ms, row_ms, max_batch, objective_ms, rate_rps]) =
        <[f64; 5]>::try_from(numbers.unwrap_or_default())
    else {
        eprintln!("usage: clairvoyant FIXED_MS ROW_MS MAX_BATCH OBJECTIVE_MS RATE_RPS");
        return ExitCode::from(2);
    };
    let curve = Curve::Linear { fixed_ms, row_ms };
    let takes: Vec<Duration> = (1..=max_batch as u32).map(|rows| curve.mean(rows)).collect();
    let arrivals = poisson((SECONDS * rate_rps) as usize, rate_rps, SEED);
    let objective = Duration::from_secs_f64(objective_ms / 1e3);
    let served = most_in_time(&arrivals, &takes, objective);
    println!("{:.4}", served as f64 / arrivals.len() as f64);
    ExitCode::SUCCESS
}

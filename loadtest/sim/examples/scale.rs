//! Prints how time and memory grow with GPUs and models, as a table for docs/benchmarks.md.
//!
//! Every fleet is planned for what is asked of it and then run twice: request by request until
//! two hundred thousand have come, and by rates for a day.

use std::{fs, path::Path, time::Duration};

use loadtest::plan::Source;
use sim::{
    place, rates,
    study::{Detail, Study},
    world::{self, Checks},
};

/// GPUs and models of each fleet.
const SIZES: [(u32, usize); 7] =
    [(10, 1), (10, 10), (100, 10), (1_000, 100), (1_000, 1_000), (10_000, 100), (10_000, 1_000)];
/// What one GPU is asked for, of the first model; set so that plans use nine tenths of the fleet.
const RPS_PER_GPU: f64 = 1_700.0;
const REQUESTS: f64 = 200_000.0;

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
#[expect(clippy::disallowed_methods, reason = "the time that passes is what is measured")]
fn main() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim/day.toml");
    let day = Study::load(&file).unwrap_or_else(|error| panic!("{error}"));
    println!(
        "| GPUs | models | replicas | planned in | requests/s of wall time | rows per batch | a day by rates | memory |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (gpus, models) in SIZES {
        let mut study = fleet_of(&day, gpus, models);
        let began = std::time::Instant::now();
        let planned = place::fleet(&study, 1);
        let planning = began.elapsed();
        let mut fleet = match planned {
            Ok(fleet) => fleet,
            Err(none) => {
                println!("| {gpus} | {models} | {none} | | | | | |");
                continue;
            }
        };
        let total: f64 = f64::from(gpus) * RPS_PER_GPU;
        fleet.terms.duration = Duration::from_secs_f64(REQUESTS / total);
        fleet.terms.warmup = Duration::ZERO;
        let began = std::time::Instant::now();
        let report =
            world::run(&fleet, Checks::default()).unwrap_or_else(|broken| panic!("{broken}"));
        let rate = report.total().offered as f64 / began.elapsed().as_secs_f64();
        let rows: u64 = report.models.iter().map(|model| model.rows).sum();
        let batches: u64 = report.models.iter().map(|model| model.batches).sum();
        fleet.terms.duration = study.terms.duration;
        study.detail = Detail::Rates;
        let began = std::time::Instant::now();
        let summary = rates::run(&study, &fleet).unwrap_or_else(|broken| panic!("{broken}"));
        println!(
            "| {gpus} | {models} | {} | {:.2} s | {:.0} | {:.1} | {:.2} s | {} MiB |",
            summary.replicas,
            planning.as_secs_f64(),
            rate,
            rows as f64 / batches as f64,
            began.elapsed().as_secs_f64(),
            peak_mib()
        );
    }
}

/// The day's first kinds of models, as many as wanted, each asked its part.
fn fleet_of(day: &Study, gpus: u32, models: usize) -> Study {
    let mut study = day.clone();
    study.faults.clear();
    study.gpus[0].count = gpus;
    let kinds: Vec<usize> = {
        let mut seen = Vec::new();
        (0..day.models.len())
            .filter(|index| {
                let kind = day.models[*index].name.split('-').next().unwrap_or_default();
                let new = !seen.contains(&kind);
                seen.push(kind);
                new
            })
            .collect()
    };
    let weights: Vec<f64> = kinds.iter().map(|kind| rate_of(&day.streams[*kind].source)).collect();
    let each = f64::from(gpus) * RPS_PER_GPU / models as f64;
    study.models.clear();
    study.streams.clear();
    for index in 0..models {
        let kind = index % kinds.len();
        let mut model = day.models[kinds[kind]].clone();
        model.name = format!("model-{index}");
        // Slow models are asked less, as they are in the day.
        let rate = each * weights[kind] / weights[0];
        model.demand_rps = Some(rate);
        let mut stream = day.streams[kinds[kind]].clone();
        stream.model = index;
        if let Source::Process(process) = &mut stream.source {
            process.rate_rps = rate;
        }
        study.models.push(model);
        study.streams.push(stream);
    }
    study
}

fn rate_of(source: &Source) -> f64 {
    match source {
        Source::Process(process) => process.rate_rps,
        Source::List(list) => list.len() as f64,
    }
}

/// The most memory this process has had.
fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

//! How many GPUs a plan takes and how long it takes to make, by the number of models and GPUs.
//!
//! `cargo run --release -p policy --example plan` prints the table of docs/benchmarks.md. Models are
//! made up from a fixed seed: a time per batch and one per row, faster on larger slices. The fleet is
//! a mix of A100, H100 and A30; demand is such that about half of it is used. A replan follows one
//! model's demand, half as much again, from the shared plan.

use std::time::Instant;

use policy::{
    interference::Draw,
    plan::{Gpus, Measured, Model, Plan, PlanError, Problem, Row, Rules, replan, solve},
};
use simgpu::random::Random;

const KINDS: [(&str, u32, f64); 3] =
    [("A100-80GB", 6, 1.0), ("H100-80GB", 3, 1.9), ("A30-24GB", 1, 0.9)];

const SIZES: [(usize, u32); 8] = [
    (10, 10),
    (40, 10),
    (10, 100),
    (100, 100),
    (40, 1_000),
    (1_000, 1_000),
    (40, 10_000),
    (1_000, 10_000),
];

fn between(random: &mut Random, least: f64, most: f64) -> f64 {
    least + (most - least) * random.unit()
}

fn model(index: usize, gpus: f64, random: &mut Random) -> Model {
    let (fixed_ms, row_ms) = (between(random, 2.0, 12.0), between(random, 0.5, 6.0));
    let bend = between(random, 0.85, 1.05);
    let measured = KINDS.iter().map(|(name, _, speed)| {
        let kind = mig::kind(name).expect("the kind is in the table");
        let mut rows = Vec::new();
        for profile in kind.profiles.iter().filter(|profile| !profile.media) {
            let speed = speed * f64::from(profile.compute_slices).powf(bend);
            for batch in [1_u32, 2, 4, 8, 16, 32, 64] {
                for processes in 1..=3_u32 {
                    let gain = 1.0 + 0.05 * f64::from(processes - 1);
                    let latency_ms = fixed_ms + f64::from(batch) * row_ms / speed;
                    let throughput_rps = f64::from(batch) / latency_ms * 1000.0 * gain;
                    let profile = profile.name.clone();
                    rows.push(Row { profile, batch, processes, throughput_rps });
                }
            }
        }
        Measured { kind: Some((*name).to_owned()), rows }
    });
    let slo_ms = (fixed_ms + row_ms) * between(random, 6.0, 40.0);
    let demand_rps = 7_000.0 / row_ms * gpus * between(random, 0.1, 1.3);
    Model {
        name: format!("m{index}"),
        demand_rps,
        slo_ms,
        measured: measured.collect(),
        max_batch: None,
        memory_mib: Some(between(random, 300.0, 3_000.0) as u64),
        replicas_min: 1,
        replicas_max: u32::MAX,
        load: Draw::default(),
        home: policy::fleet::Home::Any,
        slowdown: 1.0,
    }
}

fn problem(models: usize, gpus: u32, share_slices: bool) -> Problem {
    let mut random = Random::new(7);
    let each = f64::from(gpus) / models as f64;
    let fleet = KINDS.map(|(name, tenths, _)| Gpus {
        kind: mig::kind(name).expect("the kind is in the table"),
        count: (gpus * tenths).div_ceil(10),
    });
    Problem {
        models: (0..models).map(|index| model(index, each, &mut random)).collect(),
        fleet: fleet.to_vec(),
        rules: Rules { share_slices, ..Rules::default() },
    }
}

fn cells(plan: &Plan, seconds: f64) -> String {
    let over = (f64::from(plan.gpus_used) / plan.bound_gpus - 1.0) * 100.0;
    format!("{} | {:.1} | {over:.1} % | {seconds:.3}", plan.gpus_used, plan.bound_gpus)
}

#[expect(clippy::disallowed_methods, reason = "this program measures real time")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed().as_secs_f64())
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn main() -> Result<(), PlanError> {
    println!(
        "| models | GPUs | used, a slice to each model | bound | over | seconds | used, slices \
         shared | bound | over | seconds | replan, ms | moves |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (models, gpus) in SIZES {
        let whole_problem = problem(models, gpus, false);
        let (whole, whole_s) = timed(|| solve(&whole_problem));
        let mut shared_problem = problem(models, gpus, true);
        let (shared, shared_s) = timed(|| solve(&shared_problem));
        let (whole, shared) = (whole?, shared?);
        shared_problem.models[models / 2].demand_rps *= 1.5;
        let (replanned, replan_s) = timed(|| replan(&shared_problem, &shared.slices));
        let replanned = replanned?;
        println!(
            "| {models} | {gpus} | {} | {} | {:.1} | {}{} |",
            cells(&whole, whole_s),
            cells(&shared, shared_s),
            replan_s * 1e3,
            replanned.moves,
            if replanned.anew { " (anew)" } else { "" }
        );
    }
    Ok(())
}

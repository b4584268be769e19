//! The published scenarios, on the fewest GPUs there can be.

use std::path::Path;

use sim::{simulate::simulate, study::Study};

const SEEDS: u64 = 3;

fn keeps_every_objective(scenario: &str, gpus: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim");
    let study = Study::load(&folder.join(format!("{scenario}.toml")))
        .unwrap_or_else(|error| panic!("{error}"));
    for seed in 1..=SEEDS {
        let run = simulate(&study, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(run.gpus_used, gpus, "{scenario}");
        for model in &run.models {
            let (name, kept) = (&model.name, model.attainment);
            assert!(kept >= model.target, "{scenario}, seed {seed}: {name} kept {kept}");
        }
    }
}

#[test]
fn scenario_1_keeps_every_objective_on_one_gpu() {
    keeps_every_objective("parva-1", 1);
}

#[test]
fn scenario_2_keeps_every_objective_on_two_gpus() {
    keeps_every_objective("parva-2", 2);
}

#[test]
fn scenario_3_keeps_every_objective_on_four_gpus() {
    keeps_every_objective("parva-3", 4);
}

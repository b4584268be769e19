//! Placement and training together, on the router's own control round.

use std::{path::Path, time::Duration};

use sim::{simulate::simulate, study::Study};

fn study() -> Study {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim/together.toml");
    let mut study = Study::load(&file).unwrap_or_else(|error| panic!("{error}"));
    study.terms.duration = Duration::from_secs(900);
    study.interval = Duration::from_secs(15);
    study
}

#[test]
fn claims_hold_after_every_round_over_seeds() {
    for seed in 0..3 {
        let mut study = study();
        let training = study.training.as_mut().expect("it has jobs");
        for (index, job) in (0_u64..).zip(&mut training.jobs) {
            let shift = (index * 7_919 + seed * 104_729) % 600;
            job.submitted = Duration::from_secs(shift);
            job.runs /= 3;
        }
        training.jobs.sort_by_key(|job| job.submitted);
        training.habits.elastic = seed % 2 == 1;
        study.scale(1.0 + 0.2 * seed as f64);
        // A claim that is broken in any round is an error.
        let summary = simulate(&study, seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let trained = summary.training.expect("jobs ran");
        assert!(trained.jobs > 0, "seed {seed}: {trained:?}");
    }
}

#[test]
fn jobs_use_idle_slices_and_inference_meets_its_objective() {
    let summary = simulate(&study(), 1).unwrap_or_else(|error| panic!("{error}"));
    let trained = summary.training.expect("jobs ran");
    assert!(trained.course.iter().any(|held| held.training_gpus > 0.0), "{trained:?}");
    assert!(summary.following.is_some(), "placement ran in the same rounds");
    let ends = summary.ends;
    assert!(ends.in_time * 50 >= ends.offered * 49, "{ends:?}");
}

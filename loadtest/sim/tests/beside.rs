//! Training beside inference, on a sixteenth of what `loans.toml` has.

use std::{path::Path, time::Duration};

use loadtest::plan::Source;
use sim::{simulate::simulate, study::Study, summary::Summary};

const PART: usize = 16;
const LARGEST_JOB: f64 = 8.0;

fn study() -> Study {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim/loans.toml");
    let mut study = Study::load(&file).unwrap_or_else(|error| panic!("{error}"));
    let training = study.training.as_mut().expect("it has jobs");
    let jobs = training.jobs.iter().filter(|job| job.gpus <= LARGEST_JOB);
    training.jobs = jobs.step_by(PART).cloned().collect();
    training.gpus /= PART as u32;
    training.habits.round = Duration::from_secs(300);
    study.gpus[0].count /= PART as u32;
    study.models[0].replicas /= PART as u32;
    for stream in &mut study.streams {
        if let Source::Process(process) = &mut stream.source {
            process.rate_rps /= PART as f64;
        }
    }
    study
}

fn under(loans: &str) -> Summary {
    let mut study = study();
    study.set("loans", loans).expect("it is a rule");
    simulate(&study, 1).unwrap_or_else(|error| panic!("{loans}: {error}"))
}

#[test]
fn loans_shorten_the_queue_and_requests_do_not_feel_them() {
    let [none, aryl, ours] = ["none", "aryl", "sluice"].map(under);
    let jobs = |run: &Summary| run.training.clone().expect("it has jobs");
    assert!(jobs(&none).queueing_h > 1.5 * jobs(&ours).queueing_h, "{:?}", jobs(&ours));
    assert!(jobs(&none).completion_h > 1.5 * jobs(&ours).completion_h, "{:?}", jobs(&ours));
    assert!(
        ours.utilisation > 1.25 * none.utilisation,
        "{} {}",
        ours.utilisation,
        none.utilisation
    );
    assert!(none.ends.attainment() - ours.ends.attainment() < 0.001, "{:?}", ours.ends);
    assert!(jobs(&ours).reclaims < jobs(&aryl).reclaims, "{:?}", jobs(&aryl));
    assert!(jobs(&ours).lost_gpu_h < jobs(&aryl).lost_gpu_h, "{:?}", jobs(&aryl));
}

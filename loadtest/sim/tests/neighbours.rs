//! Plans that know what slices share, against plans that do not.

use std::{path::Path, time::Duration};

use sim::{simulate::simulate, study::Study, summary::Summary};

fn placed_by(planner: &str) -> Summary {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim/neighbours.toml");
    let mut study = Study::load(&file).unwrap_or_else(|error| panic!("{error}"));
    study.set("placement", planner).expect("it is a planner");
    study.terms.duration = study.terms.warmup + Duration::from_secs(5);
    simulate(&study, 1).unwrap_or_else(|error| panic!("{planner}: {error}"))
}

#[test]
fn modeling_interference_cuts_misses_to_a_third() {
    let [aware, blind] = ["plan", "plan-blind"].map(placed_by);
    assert_eq!(aware.gpus_used, blind.gpus_used);
    let lost = |run: &Summary| run.ends.offered - run.ends.in_time;
    assert!(3 * lost(&aware) <= lost(&blind), "{:?} {:?}", aware.ends, blind.ends);
    let error = aware.slowdown_errors[1].expect("there were predictions after a minute");
    assert!(error < 0.05, "{error}");
}

//! Whole fleets: the claims hold whatever goes wrong, and the physics is felt.

use std::{path::Path, time::Duration};

use sim::{
    claims::Claim,
    fleet::{Fault, Trouble},
    place,
    report::Report,
    shrink::shrink,
    simulate::simulate,
    study::{Detail, Placement, Study},
    summary::Summary,
    world::{self, Checks},
};

const SEEDS: u64 = 50;

fn study(name: &str) -> Study {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim");
    let study = Study::load(&folder.join(format!("{name}.toml")));
    study.unwrap_or_else(|error| panic!("{error}"))
}

fn run(study: &Study, seed: u64, checks: Checks<'_>) -> Report {
    let fleet = place::fleet(study, seed).expect("its GPUs have room");
    world::run(&fleet, checks).unwrap_or_else(|broken| panic!("{broken}"))
}

fn summary(study: &Study, seed: u64) -> Summary {
    simulate(study, seed).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_claim_holds_after_every_event_whatever_goes_wrong() {
    let mut study = study("chaos");
    study.terms.duration = Duration::from_secs(6);
    let (mut offered, mut failed, mut refused, mut late) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let total = run(&study, seed, Checks { every: 1, ..Checks::default() }).total();
        offered += total.offered;
        failed += total.failed;
        refused += total.refused;
        late += total.late;
    }
    // The dice reach every corner.
    assert!(
        offered > 50_000 && failed > 500 && refused > 500 && late > 10,
        "{offered} {failed} {refused} {late}"
    );
}

#[test]
fn a_seed_names_exactly_one_run() {
    let study = study("chaos");
    let report = |seed| run(&study, seed, Checks::default());
    assert_eq!(report(7), report(7));
    assert_ne!(report(7), report(8));
}

#[test]
fn broken_claim_shrinks_to_the_one_fault_behind_it() {
    let mut study = study("chaos");
    study.random_faults = 0;
    let fault =
        |at, trouble| Fault { at: Duration::from_secs(at), lasts: Duration::from_secs(1), trouble };
    study.faults = vec![
        fault(2, Trouble::SlowGpu { gpu: 0, factor: 2.0 }),
        fault(4, Trouble::RouterRestart),
        fault(6, Trouble::DeadGpu { gpu: 1 }),
        fault(8, Trouble::SlowNetwork { by: Duration::from_millis(5) }),
    ];
    let fleet = place::fleet(&study, 3).unwrap();
    // Nobody ever fails: broken by the restart alone.
    let claim =
        |report: &Report| (report.total().failed > 0).then(|| "a request failed".to_owned());
    let checks = Checks { own: Some(&claim), ..Checks::default() };
    let broken = world::run(&fleet, checks).unwrap_err();
    assert_eq!(broken.claim, Claim::Own("a request failed".to_owned()));
    let shrunk = shrink(&fleet, &broken, checks);
    assert_eq!(shrunk.faults, [study.faults[1]], "{shrunk}");
    assert_eq!(shrunk.streams.len(), 1, "{shrunk}");
    assert!(shrunk.broken.events < broken.events, "{shrunk}");
    let told = shrunk.to_string();
    assert!(told.starts_with("seed 3: a request failed after "), "{told}");
    assert!(told.contains("RouterRestart at 4.000 s for 1.000 s"), "{told}");
    // It is the shortest: one event less does not show it.
    let mut least = fleet;
    least.faults = shrunk.faults;
    least.streams = shrunk.streams.iter().map(|index| least.streams[*index].clone()).collect();
    let shorter = Checks { most_events: shrunk.broken.events - 1, ..checks };
    assert!(world::run(&least, shorter).is_ok());
}

fn saturated(processes: u32) -> Summary {
    let mut study = study("overload");
    let kind = study.gpus[0].kind;
    let slice = kind.position("2g.20gb@0").expect("it is a position of an A100");
    let alone = mig::Geometry::new(kind, vec![slice]).expect("one slice has room");
    study.gpus[0].geometry = alone;
    study.models[0].replicas = processes;
    study.models[0].max_batch = 8;
    study.terms.noise = 0.0;
    study.scale(2.0);
    summary(&study, 1)
}

#[test]
fn processes_sharing_a_slice_reach_the_measured_throughput() {
    for processes in [1, 2, 3] {
        let rows = &study("overload").models[0].rows;
        let row = rows
            .iter()
            .find(|row| row.profile == "2g.20gb" && row.batch == 8 && row.processes == processes)
            .unwrap();
        let found = saturated(processes);
        let served = found.ends.in_time + found.ends.late;
        let rps = served as f64 / found.simulated_s;
        let off = rps / row.throughput_rps - 1.0;
        assert!(off.abs() < 0.05, "{processes}: {rps:.0} for {:.0}", row.throughput_rps);
    }
}

#[test]
fn a_gpu_that_dies_costs_only_what_the_others_cannot_take() {
    let mut study = study("two-gpus");
    study.faults = vec![Fault {
        at: Duration::from_secs(20),
        lasts: Duration::from_secs(5),
        trouble: Trouble::DeadGpu { gpu: 0 },
    }];
    study.models[0].replicas = 3;
    study.scale(0.3);
    let found = summary(&study, 1);
    let resnet = &found.models[0];
    // A request sent again to a second replica of the dying GPU is given up: it may be the cause.
    assert!(resnet.attainment > 0.995 && resnet.ends.failed <= 1, "{resnet:?}");
    let bert = &found.models[2];
    assert!(bert.attainment < 0.95 && bert.ends.refused > 0, "the only replica died: {bert:?}");
}

#[test]
fn by_rates_comes_to_what_request_by_request_does() {
    let mut study = study("overload");
    study.terms.duration = Duration::from_secs(60);
    study.interval = Duration::from_secs(5);
    for scale in [0.5, 0.9, 1.5] {
        let mut scaled = study.clone();
        scaled.scale(scale);
        let requests = summary(&scaled, 1);
        scaled.detail = Detail::Rates;
        let rates = summary(&scaled, 1);
        let (one, other) = (requests.models[0].attainment, rates.models[0].attainment);
        assert!((one - other).abs() < 0.02, "x{scale}: {one:.3} by requests, {other:.3} by rates");
        let (one, other) = (requests.models[0].mean_batch, rates.models[0].mean_batch);
        assert!((one / other - 1.0).abs() < 0.1, "x{scale}: batches of {one:.2} and {other:.2}");
    }
}

#[test]
fn ten_thousand_gpus_are_gone_through_by_rates() {
    let mut study = study("day");
    study.terms.duration = Duration::from_secs(1_200);
    study.placement = Placement::Spread;
    for model in &mut study.models {
        model.replicas = 100;
    }
    let found = summary(&study, 1);
    assert_eq!((found.gpus, found.gpus_used, found.events), (10_000, 10_000, 20));
    assert!(found.ends.offered > 1_000_000_000, "{:?}", found.ends);
}

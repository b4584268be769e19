//! Whatever the order and the course of inference, loans keep their claims.
//!
//! Every run checks after each round that no slice has two owners, no gang is half started, the
//! service attained is the service given, and every job runs, starts, or is told why it waits. A
//! failure is replayed by the seed in its message.

use std::time::Duration;

use policy::{
    loan::{Loaning, Rules, Slice, order, slice_speed},
    moment::Moment,
};
use sim::{
    random::Random,
    training::{Habits, Report, Setup, TraceJob, run, whole_gpus},
};

const SEEDS: u64 = 6;

fn at(seconds: u64) -> Moment {
    Moment::from_micros(seconds * 1_000_000)
}

fn tenants() -> Vec<String> {
    ["one", "two", "three"].map(str::to_owned).into()
}

fn mixed(random: &mut Random) -> Vec<Slice> {
    let mut slices = whole_gpus(12);
    for (index, slice) in slices.iter_mut().enumerate() {
        let compute = [1, 2, 3, 7][random.below(4) as usize];
        slice.compute = compute;
        slice.share = f64::from(compute) / 7.0;
        slice.speed = slice_speed(compute, 7);
        slice.gpu = index as u32 / 2;
        slice.host = index as u32 / 3;
    }
    slices
}

fn jobs(random: &mut Random) -> Vec<TraceJob> {
    let mut second = 0;
    let mut job = |_| {
        second += random.below(900);
        let longest = 1 << (4 + random.below(11));
        TraceJob {
            submitted: at(second),
            gpus: [1, 1, 1, 2, 4, 6][random.below(6) as usize],
            takes: Duration::from_secs(10 + random.below(longest)),
            tenant: random.below(3) as usize,
        }
    };
    (0..60).map(&mut job).collect()
}

/// A need that changes every five minutes, and ends so that what was kept back can be lent at last.
fn course(random: &mut Random) -> Vec<(Moment, u32)> {
    let mut course: Vec<(Moment, u32)> =
        (0..400).map(|step| (at(step * 300), random.below(7) as u32)).collect();
    course.push((at(400 * 300), 0));
    course
}

fn outcome(seed: u64, order: &str, loaning: Loaning) -> Report {
    let mut random = Random::new(seed);
    let (slices, jobs) = (mixed(&mut random), jobs(&mut random));
    let inference = course(&mut random);
    let habits = Habits {
        lengths_known: random.below(2) == 0,
        elastic: random.below(2) == 0,
        reserve: random.below(2) as u32,
        ..Habits::default()
    };
    let rules = Rules {
        order: order::named(order).expect("the order exists"),
        fair_tenants: random.below(2) == 0,
        loaning,
        ..Rules::default()
    };
    let tenants = tenants();
    let setup =
        Setup { jobs: &jobs, tenants: &tenants, slices, inference: &inference, rules, habits };
    match run(setup) {
        Ok(report) => report,
        Err(broken) => panic!("seed {seed}, {order}, {loaning:?}: {broken:?}"),
    }
}

#[test]
fn every_order_and_rule_keeps_the_claims_and_ends_every_job() {
    for order in order::all() {
        for seed in 0..SEEDS {
            let loaning = if seed % 2 == 0 { Loaning::Sluice } else { Loaning::Aryl };
            let report = outcome(seed, order.name(), loaning);
            assert_eq!(report.jobs, 60, "seed {seed}, {}", order.name());
        }
    }
}

#[test]
fn a_seed_names_exactly_one_run() {
    assert_eq!(outcome(3, "las", Loaning::Sluice), outcome(3, "las", Loaning::Sluice));
    assert_ne!(outcome(3, "las", Loaning::Sluice), outcome(4, "las", Loaning::Sluice));
}

#[test]
fn a_large_gang_starts_although_small_jobs_never_cease_to_come() {
    // A quarter more than eight GPUs can do, for ten hours.
    let small = |index: u64| TraceJob {
        submitted: at(index * 60),
        gpus: 1,
        takes: Duration::from_secs(600),
        tenant: 0,
    };
    let mut jobs: Vec<TraceJob> = (0..600).map(small).collect();
    let takes = Duration::from_secs(1800);
    jobs.insert(21, TraceJob { submitted: at(1200), gpus: 8, takes, tenant: 0 });
    let tenants = tenants();
    for order in order::all() {
        let name = order.name();
        let patience = Duration::from_secs(3600);
        let report = run(Setup {
            jobs: &jobs,
            tenants: &tenants,
            slices: whole_gpus(8),
            inference: &[],
            rules: Rules { order, fair_tenants: false, patience, ..Rules::default() },
            habits: Habits { lengths_known: true, ..Habits::default() },
        });
        let report = report.unwrap_or_else(|broken| panic!("{name}: {broken:?}"));
        let longest = report.longest_wait_h;
        assert!(longest < 5.0, "{name}: somebody waited {longest} h");
    }
}

#[test]
fn inference_has_its_slices_back_within_a_round() {
    let jobs: Vec<TraceJob> = (0..8)
        .map(|_| TraceJob {
            submitted: at(0),
            gpus: 1,
            takes: Duration::from_secs(40_000),
            tenant: 0,
        })
        .collect();
    // A burst that nothing foretold: the emergency path.
    let inference = [(at(6_000), 6), (at(12_000), 0)];
    let tenants = tenants();
    let report = run(Setup {
        jobs: &jobs,
        tenants: &tenants,
        slices: whole_gpus(8),
        inference: &inference,
        rules: Rules::default(),
        habits: Habits::default(),
    })
    .unwrap();
    assert_eq!(report.reclaims, 6);
    assert!(report.short_h * 3600.0 <= 6.0 * 60.0, "{} h", report.short_h);
    assert!(report.lost_h * 3600.0 <= 6.0 * 600.0, "no more than a checkpoint's interval each");
}

//! What a late answer is served from: what is left after all that can be in time.

use std::time::Duration;

use policy::{
    dispatch::Class,
    rule::{Rule, Slo},
};
use sim::{
    curve::Curve,
    report::Outcome,
    scenario::{Scenario, Stream},
};

const SEEDS: u64 = 8;
const OBJECTIVE: Duration = Duration::from_millis(50);
/// In points of the share in time.
const LITTLE: f64 = 0.005;

fn slo() -> Box<dyn Rule> {
    Box::new(Slo)
}

/// Of `curve`, what is asked without a timeout and with one of ten objectives.
fn both(curve: Curve, replicas: u32, streams: &[Stream]) -> [Vec<Outcome>; 2] {
    [None, Some(OBJECTIVE * 10)].map(|timeout| {
        let routed = Scenario::routed(curve, 32, OBJECTIVE);
        let scenario =
            Scenario { streams: streams.to_vec(), replicas, timeout, noise: 0.05, ..routed };
        scenario.outcomes(SEEDS, &slo)
    })
}

/// Rows a second in batches of 32, of each of two models.
const CURVES: [(Curve, f64); 2] = [
    (Curve::Linear { fixed_ms: 10.0, row_ms: 1.0 }, 762.0),
    (Curve::Linear { fixed_ms: 2.0, row_ms: 0.1 }, 6_154.0),
];

#[test]
fn long_timeout_leaves_the_share_in_time_as_it_is() {
    for (curve, capacity) in CURVES {
        for (replicas, load) in [(1, 0.5), (1, 0.8), (1, 1.0), (1, 1.2), (1, 2.0), (3, 1.0)] {
            let rate = load * capacity * f64::from(replicas);
            let [without, with] = both(curve, replicas, &[Stream::plain(rate)]);
            let (before, after) = (without[0].attainment(), with[0].attainment());
            let told = format!("{replicas} of {curve:?} x{load}: {without:?}, {with:?}");
            assert!((after - before).abs() <= LITTLE, "{before:.4}, now {after:.4}; {told}");
            let turned_away = |outcome: &Outcome| outcome.refused as f64 / outcome.offered as f64;
            assert!(turned_away(&with[0]) <= turned_away(&without[0]) + LITTLE, "{told}");
        }
    }
}

#[test]
fn late_requests_do_not_crowd_out_the_batch_class() {
    let (curve, capacity) = CURVES[0];
    let batch = Stream { class: Class::Batch, ..Stream::plain(0.2 * capacity) };
    let [without, with] = both(curve, 1, &[Stream::plain(0.5 * capacity), batch]);
    for (before, after) in without.iter().zip(&with) {
        let (before, after) = (before.attainment(), after.attainment());
        assert!(after >= before - LITTLE, "{before:.4}, now {after:.4}: {without:?}, {with:?}");
    }
}

#[test]
fn requests_that_come_in_bursts_are_served_late_between_them() {
    let (curve, capacity) = CURVES[0];
    let [without, with] = both(curve, 1, &[Stream::plain(0.8 * capacity)]);
    let served = |outcome: &Outcome| outcome.in_time + outcome.late;
    let (before, after) = (served(&without[0]), served(&with[0]));
    assert!(after > before, "{before} served, then {after}: {without:?}, {with:?}");
    assert!(with[0].late > 0, "{with:?}");
}

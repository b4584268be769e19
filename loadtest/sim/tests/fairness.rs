//! One caller's flood is not another's problem, and weights mean what they say.

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

const SEEDS: u64 = 4;

/// A curve, the largest batch, and about what it serves per second with nobody lost.
const MODELS: [(Curve, u32, f64); 2] = [
    (Curve::Linear { fixed_ms: 10.0, row_ms: 1.0 }, 32, 580.0),
    (Curve::Linear { fixed_ms: 4.0, row_ms: 0.5 }, 32, 1_600.0),
];

fn slo() -> Box<dyn Rule> {
    Box::new(Slo)
}

fn outcomes(model: usize, streams: &[Stream]) -> Vec<Outcome> {
    scenario(model, 50, streams).outcomes(SEEDS, &slo)
}

fn scenario(model: usize, objective_ms: u64, streams: &[Stream]) -> Scenario {
    let (curve, max_batch, _) = MODELS[model];
    Scenario {
        streams: streams.to_vec(),
        duration: Duration::from_secs(7),
        warmup: Duration::from_secs(2),
        ..Scenario::routed(curve, max_batch, Duration::from_millis(objective_ms))
    }
}

fn weighted(rate: f64, weight: f64) -> Stream {
    Stream { weight, ..Stream::plain(rate) }
}

#[test]
fn flooding_tenant_costs_others_less_than_a_percentage_point() {
    for (model, (_, _, capacity)) in MODELS.iter().enumerate() {
        let share = capacity / 5.0;
        for part in [0.1, 0.5, 0.8] {
            let modest = Stream::plain(part * share);
            let flood = Stream::plain(50.0 * share);
            let quiet = outcomes(model, &[modest; 5]);
            let flooded = outcomes(model, &[modest, modest, modest, modest, flood]);
            for tenant in 0..4 {
                let (before, after) = (quiet[tenant].attainment(), flooded[tenant].attainment());
                assert!(
                    after > before - 0.01,
                    "model {model}, {part} of its share: tenant {tenant} fell from {before:.4} to {after:.4}"
                );
            }
            let rest = 1.0 - 4.0 * part / 5.0;
            let used = flooded[4].in_time as f64 / (SEEDS as f64 * 5.0 * capacity);
            assert!(used > 0.8 * rest, "model {model}: the flood has {used:.2} of {rest:.2} left");
        }
    }
}

/// Four tenants at `part` of their share of `capacity`, by themselves and beside a fifth at fifty times
/// its own, on the slow model with batches that vary by `noise`.
fn quiet_and_flooded(objective_ms: u64, capacity: f64, noise: f64, part: f64) -> [Vec<Outcome>; 2] {
    let modest = Stream::plain(part * capacity / 5.0);
    let flood = Stream::plain(50.0 * capacity / 5.0);
    [modest, flood].map(|fifth| {
        let streams = [modest, modest, modest, modest, fifth];
        let steady = scenario(0, objective_ms, &streams);
        Scenario { noise, ..steady }.outcomes(2 * SEEDS, &slo)
    })
}

/// What a machine adds to a batch must not be missing to who just missed it: at 50 ms, two batches of
/// half the objective fill it to the last millisecond.
fn a_flood_is_hardly_felt_though_times_vary(objective_ms: u64, capacity: f64) {
    for noise in [0.03, 0.06, 0.1] {
        for part in [0.1, 0.5, 0.8] {
            let case = format!("{objective_ms} ms, noise {noise}, {part} of the share");
            let [quiet, flooded] = quiet_and_flooded(objective_ms, capacity, noise, part);
            for tenant in 0..4 {
                let (before, after) = (quiet[tenant].attainment(), flooded[tenant].attainment());
                assert!(
                    after > before - 0.005,
                    "{case}: tenant {tenant} fell from {before:.4} to {after:.4}"
                );
            }
            let rest = 1.0 - 4.0 * part / 5.0;
            let used = flooded[4].in_time as f64 / (2.0 * SEEDS as f64 * 5.0 * capacity);
            assert!(used > 0.6 * rest, "{case}: the flood has {used:.2} of {rest:.2} left");
        }
    }
}

#[test]
fn a_flood_is_hardly_felt_within_50_ms_though_batch_times_vary() {
    a_flood_is_hardly_felt_though_times_vary(50, 600.0);
}

#[test]
fn a_flood_is_hardly_felt_within_100_ms_though_batch_times_vary() {
    a_flood_is_hardly_felt_though_times_vary(100, 762.0);
}

#[test]
fn two_floods_are_served_by_their_weights() {
    for (model, (_, _, capacity)) in MODELS.iter().enumerate() {
        for (first, second) in [(1.0, 1.0), (2.0, 2.0), (1.0, 5.0)] {
            let streams = [weighted(first * capacity, 2.0), weighted(second * capacity, 1.0)];
            let found = outcomes(model, &streams);
            let ratio = found[0].in_time as f64 / found[1].in_time as f64;
            assert!((1.8..2.2).contains(&ratio), "model {model}, {first}:{second}: {ratio:.2}");
        }
    }
}

#[test]
fn capacity_left_by_a_modest_tenant_goes_to_the_flooding_one() {
    let (_, _, capacity) = MODELS[1];
    let found = outcomes(1, &[weighted(0.1 * capacity, 10.0), weighted(3.0 * capacity, 1.0)]);
    assert!(found[0].attainment() > 0.999, "{found:?}");
    let used = found[1].in_time as f64 / (SEEDS as f64 * 5.0 * capacity);
    assert!(used > 0.85, "{used:.2}");
}

#[test]
fn batch_class_is_refused_first_and_spares_interactive_requests() {
    for (model, (_, _, capacity)) in MODELS.iter().enumerate() {
        for load in [0.3, 0.6, 0.9, 2.0] {
            let interactive = Stream::plain(load * capacity);
            let alone = outcomes(model, &[interactive])[0].attainment();
            for batch in [0.3, 5.0] {
                let batch = Stream { class: Class::Batch, ..Stream::plain(batch * capacity) };
                let found = outcomes(model, &[interactive, batch]);
                let beside = found[0].attainment();
                assert!(beside > alone - 0.005, "model {model} x{load}: {alone:.4} to {beside:.4}");
                if load >= 0.9 {
                    let served = found[1].attainment();
                    assert!(served < 0.02, "model {model} x{load}: {served:.3} of the batch class");
                }
            }
        }
    }
}

#[test]
fn the_batch_class_uses_what_is_left() {
    for (model, (_, _, capacity)) in MODELS.iter().enumerate() {
        let batch = Stream { class: Class::Batch, ..Stream::plain(5.0 * capacity) };
        let found = outcomes(model, &[Stream::plain(0.3 * capacity), batch]);
        let used = found[1].in_time as f64 / (SEEDS as f64 * 5.0 * capacity);
        assert!(used > 0.4, "model {model}: {used:.2} of capacity");
        assert!(found[1].lateness() < 0.01, "model {model}: {:?}", found[1]);
    }
}

//! What the default rule promises, in virtual time, with the lead and margin the router uses.
//!
//! What is possible is what one could serve who knew all arrivals beforehand, needed no time for the
//! way to a replica and kept nothing back for the way to the client.

use std::time::Duration;

use policy::rule::{Rule, Slo};
use sim::{
    clairvoyant,
    curve::Curve,
    report::{Outcome, Tenth},
    scenario::{Scenario, Stream},
};

const SEEDS: u64 = 8;
const FORESEEN: usize = 20_000;

#[derive(Clone, Copy)]
struct Model {
    fixed_ms: f64,
    row_ms: f64,
    max_batch: u32,
}

const SLOW: Model = Model { fixed_ms: 10.0, row_ms: 1.0, max_batch: 32 };
const FAST: Model = Model { fixed_ms: 2.0, row_ms: 0.1, max_batch: 64 };
const FAST_CAPACITY: f64 = 7_619.0;

impl Model {
    fn scenario(self, objective_ms: u64, rate: f64) -> Scenario {
        let Model { fixed_ms, row_ms, max_batch } = self;
        let objective = Duration::from_millis(objective_ms);
        let curve = Curve::Linear { fixed_ms, row_ms };
        let streams = vec![Stream::plain(rate)];
        Scenario { streams, ..Scenario::routed(curve, max_batch, objective) }
    }

    fn outcome(self, objective_ms: u64, rate: f64) -> Outcome {
        self.scenario(objective_ms, rate).outcomes(SEEDS, &slo)[0]
    }

    /// The largest share of the requests that can be in time.
    fn possible(self, objective_ms: u64, rate: f64) -> f64 {
        let Model { fixed_ms, row_ms, max_batch } = self;
        let curve = Curve::Linear { fixed_ms, row_ms };
        let takes: Vec<Duration> = (1..=max_batch).map(|rows| curve.mean(rows)).collect();
        let arrivals = clairvoyant::poisson(FORESEEN, rate, 0);
        let objective = Duration::from_millis(objective_ms);
        clairvoyant::most_in_time(&arrivals, &takes, objective) as f64 / FORESEEN as f64
    }
}

fn slo() -> Box<dyn Rule> {
    Box::new(Slo)
}

/// No answer late, no refusal late, and nine refusals in ten at once.
fn is_honest(outcome: Outcome) {
    assert!(outcome.lateness() < 0.01, "late: {outcome:?}");
    assert_eq!(outcome.refused_late, 0, "refused after the deadline: {outcome:?}");
    let early = outcome.refused_early as f64 / outcome.refused.max(1) as f64;
    assert!(early >= 0.9, "only {early:.3} refused within 5 ms: {outcome:?}");
}

#[test]
fn the_slow_model_at_half_load_keeps_99_percent_within_50_ms() {
    let outcome = SLOW.outcome(50, 381.0);
    assert!(outcome.attainment() >= 0.99, "{outcome:?}");
    assert!(outcome.lateness() < 0.01, "{outcome:?}");
}

#[test]
fn slow_model_at_double_load_keeps_44_percent_within_50_ms() {
    let outcome = SLOW.outcome(50, 1_524.0);
    assert!(outcome.attainment() >= 0.44, "{outcome:?}");
    is_honest(outcome);
}

#[test]
fn fast_model_at_90_percent_load_meets_its_objective() {
    for objective_ms in [25, 50] {
        let outcome = FAST.outcome(objective_ms, 0.9 * FAST_CAPACITY);
        assert!(outcome.attainment() >= 0.99, "{objective_ms} ms: {outcome:?}");
        assert!(outcome.lateness() < 0.01, "{objective_ms} ms: {outcome:?}");
    }
}

#[test]
fn fast_model_at_double_load_serves_90_percent_of_capacity() {
    for objective_ms in [25, 50] {
        let outcome = FAST.outcome(objective_ms, 2.0 * FAST_CAPACITY);
        assert!(2.0 * outcome.attainment() >= 0.9, "{objective_ms} ms: {outcome:?}");
        is_honest(outcome);
    }
}

#[test]
fn tight_objectives_are_kept_at_light_load() {
    for (model, objective_ms, rate) in [(SLOW, 25, 60.0), (FAST, 10, 0.5 * FAST_CAPACITY)] {
        let outcome = model.outcome(objective_ms, rate);
        assert!(outcome.attainment() >= 0.99, "{objective_ms} ms, {rate}/s: {outcome:?}");
        assert!(outcome.lateness() < 0.01, "{objective_ms} ms, {rate}/s: {outcome:?}");
    }
}

#[test]
fn tight_objectives_come_near_what_is_possible_under_overload() {
    let cases = [
        (SLOW, 25, 1_524.0),
        (FAST, 10, 0.9 * FAST_CAPACITY),
        (FAST, 10, 1.2 * FAST_CAPACITY),
        (FAST, 10, 2.0 * FAST_CAPACITY),
    ];
    for (model, objective_ms, rate) in cases {
        let outcome = model.outcome(objective_ms, rate);
        let possible = model.possible(objective_ms, rate);
        let found = outcome.attainment();
        assert!(
            found >= 0.9 * possible,
            "{objective_ms} ms, {rate}/s: {found:.3} of {possible:.3}"
        );
        is_honest(outcome);
    }
}

#[test]
fn model_slower_than_its_objective_refuses_at_once() {
    let outcome = SLOW.outcome(10, 381.0);
    assert_eq!(outcome.in_time + outcome.late, 0, "{outcome:?}");
    assert_eq!(outcome.refused_early, outcome.offered, "{outcome:?}");
}

/// What arrives from two seconds after the model became twice as slow, over all seeds.
fn after_slowdown(model: Model, objective_ms: u64, rate: f64) -> Tenth {
    let slows_at = Duration::from_secs(3);
    let (from, to) = (slows_at + Duration::from_secs(2), Duration::from_secs(7));
    let mut sum = Tenth::default();
    for seed in 0..SEEDS {
        let scenario = Scenario {
            slowdown: Some((slows_at, 2.0)),
            duration: to,
            seed,
            ..model.scenario(objective_ms, rate)
        };
        sum = sum.plus(scenario.run(&slo).between(from, to));
    }
    sum
}

#[test]
fn model_that_slows_down_meets_its_objective_within_2_s() {
    for (objective_ms, rate) in [(50, 3_000.0), (25, 3_000.0), (10, 400.0)] {
        let after = after_slowdown(FAST, objective_ms, rate);
        assert!(
            after.in_time as f64 >= 0.99 * after.offered as f64,
            "{objective_ms} ms: {after:?}"
        );
    }
}

#[test]
fn model_that_becomes_too_slow_serves_the_possible_within_2_s() {
    let cases = [
        (SLOW, 50, 381.0),
        (SLOW, 50, 762.0),
        (FAST, 50, 6_857.0),
        (FAST, 25, 6_857.0),
        (FAST, 10, 6_857.0),
    ];
    for (model, objective_ms, rate) in cases {
        let slower = Model {
            fixed_ms: 2.0 * model.fixed_ms,
            row_ms: 2.0 * model.row_ms,
            max_batch: model.max_batch,
        };
        let possible = slower.possible(objective_ms, rate);
        let after = after_slowdown(model, objective_ms, rate);
        let in_time = after.in_time as f64 / after.offered as f64;
        let case = format!("{objective_ms} ms, {rate}/s");
        assert!(in_time >= 0.88 * possible, "{case}: {in_time:.3} of {possible:.3}");
        let answered = after.in_time + after.late;
        assert!((after.late as f64) < 0.01 * answered as f64, "{case}: {after:?}");
    }
}

#[test]
fn a_seed_names_exactly_one_run() {
    let scenario = |seed| Scenario { seed, noise: 0.2, ..SLOW.scenario(50, 700.0) };
    assert_eq!(scenario(7).run(&slo), scenario(7).run(&slo));
    assert_ne!(scenario(7).run(&slo), scenario(8).run(&slo));
}

//! Several replicas and several shapes: what one replica and one shape promise must carry over.

use std::time::Duration;

use policy::rule::{Aimd, Deadline, Deferred, EarlyDrop, Rule, Slo};
use sim::{
    curve::Curve,
    scenario::{Scenario, Stream},
};

const SEEDS: u64 = 4;
/// Of 10 ms and 1 ms a row, in batches of 32.
const CAPACITY: f64 = 762.0;

fn slow(replicas: u32, streams: Vec<Stream>) -> Scenario {
    let curve = Curve::Linear { fixed_ms: 10.0, row_ms: 1.0 };
    let objective = Duration::from_millis(50);
    Scenario { replicas, streams, ..Scenario::routed(curve, 32, objective) }
}

fn in_time(scenario: &Scenario, rule: fn() -> Box<dyn Rule>) -> u64 {
    scenario.outcomes(SEEDS, &rule).iter().map(|outcome| outcome.in_time).sum()
}

#[test]
fn several_replicas_serve_no_less_each_than_one_alone() {
    for load in [0.5, 0.9, 1.2, 2.0] {
        let share = |replicas: u32| {
            let rate = load * CAPACITY * f64::from(replicas);
            let outcome =
                slow(replicas, vec![Stream::plain(rate)]).outcomes(SEEDS, &|| Box::new(Slo))[0];
            assert!(outcome.lateness() < 0.01, "{replicas} x{load}: {outcome:?}");
            outcome.attainment()
        };
        let alone = share(1);
        for replicas in [2, 4, 8] {
            let each = share(replicas);
            assert!(each > alone - 0.01, "{replicas} x{load}: {each:.3}, alone {alone:.3}");
        }
    }
}

#[test]
fn mixed_shapes_under_overload_stay_within_10_percent_of_best() {
    let rivals: [fn() -> Box<dyn Rule>; 4] =
        [|| Box::new(Aimd), || Box::new(Deadline), || Box::new(EarlyDrop), || Box::new(Deferred)];
    for shapes in [2, 4, 8] {
        for rate in [CAPACITY, 2.0 * CAPACITY] {
            let scenario = Scenario { shapes, ..slow(1, vec![Stream::plain(rate)]) };
            let ours = in_time(&scenario, || Box::new(Slo));
            for (rival, rule) in rivals.iter().enumerate() {
                let theirs = in_time(&scenario, *rule);
                assert!(
                    ours as f64 >= 0.9 * theirs as f64,
                    "{shapes} shapes, {rate}/s: {ours}, rival {rival} {theirs}"
                );
            }
        }
    }
}

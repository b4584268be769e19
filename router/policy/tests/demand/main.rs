//! The forecast against a load that doubles, a steady one, and fourteen days of production.

mod world;

use std::time::Duration;

use world::{Way, World, production};

const TRACE: &str = include_str!("../data/servegen_m-small_rate_10min.csv");

fn world(rate: &dyn Fn(f64) -> f64, seed: u64) -> World<'_> {
    World {
        rate,
        length: Duration::from_secs(600),
        tick: Duration::from_secs(1),
        replica_rps: 25.0,
        load_time: Duration::from_secs(5),
        slo: Duration::from_millis(500),
        seed,
    }
}

#[test]
fn load_doubling_in_10_s_loses_under_one_percent() {
    let doubling = |at: f64| 800.0 * (1.0 + ((at - 300.0) / 10.0).clamp(0.0, 1.0));
    for seed in 0..10 {
        let outcome = world(&doubling, seed).run(Way::Forecast);
        assert!(outcome.attained > 0.99, "seed {seed}: {}", outcome.attained);
        let known = world(&doubling, seed).run(Way::Clairvoyant);
        let cost = outcome.replica_hours / known.replica_hours;
        assert!(cost < 1.5, "seed {seed}: {cost} times what is needed");
    }
}

#[test]
fn a_steady_load_changes_hardly_anything() {
    for seed in 0..10 {
        let outcome = world(&|_| 800.0, seed).run(Way::Forecast);
        assert!(outcome.attained > 0.9999, "seed {seed}: {}", outcome.attained);
        assert!(outcome.changes <= 12, "seed {seed}: {} changes", outcome.changes);
    }
}

#[test]
fn fourteen_production_days_need_far_less_than_the_peak() {
    let (rate, length) = production(TRACE);
    let world = World { length, tick: Duration::from_secs(10), ..world(&rate, 1) };
    let world = World { load_time: Duration::from_secs(30), ..world };
    let [ours, peak, known] =
        [Way::Forecast, Way::Peak, Way::Clairvoyant].map(|way| world.run(way));
    assert!(ours.attained > 0.999, "{}", ours.attained);
    assert!(known.attained > 0.999, "{}", known.attained);
    let (saved, over) =
        (1.0 - ours.replica_hours / peak.replica_hours, ours.replica_hours / known.replica_hours);
    assert!(saved > 0.15, "{saved} of the peak saved");
    assert!(over < 1.25, "{over} times what a clairvoyant needs");
}

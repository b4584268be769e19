//! Runs that must not change: their figures, digested, as they were before models had a `timeout_ms`.
//!
//! A model whose timeout is its objective is served as if there were no timeouts, byte for byte.
//! Where a change means to change the runs, the failure shows the digests to put here.

use std::{fmt::Write, path::Path, time::Duration};

use policy::{dispatch::Class, rule::Batching};
use sim::{
    curve::Curve,
    report::Report,
    scenario::{Scenario, Stream},
    simulate::simulate,
    study::Study,
};

/// Of 10 ms and 1 ms a row, in batches of 32.
const CAPACITY: f64 = 762.0;
const RULES: [(&str, Batching); 6] = [
    ("slo", Batching::Slo),
    ("aimd", Batching::Aimd),
    ("deadline", Batching::Deadline),
    ("earlydrop", Batching::EarlyDrop),
    ("deferred", Batching::Deferred),
    ("timeout", Batching::Timeout { batch: 8, delay: Duration::from_millis(5) }),
];

/// Of each of [`runs`], in their order.
const GOLDEN: [(&str, u64); 13] = [
    ("slo", 0x4d51_0dc5_eb52_9254),
    ("aimd", 0x2cdf_1e61_f1e6_c0ff),
    ("deadline", 0x5b97_7d4b_4fb3_7223),
    ("earlydrop", 0x0b9b_3a91_738a_53ff),
    ("deferred", 0x2097_bb5f_4fff_dd5b),
    ("timeout", 0xc05e_baae_1dca_cc21),
    ("classes", 0xaec7_b5dc_1e6b_3f8c),
    ("tenants", 0x5121_94d6_6274_a59b),
    ("shapes", 0x6de0_f4aa_0b04_e28e),
    ("slowing", 0xe01f_1b9e_f43f_d213),
    ("parva-2", 0x6825_6d91_592d_a1ca),
    ("chaos", 0x1fd7_8a85_1176_6bfb),
    ("two-gpus", 0xf218_236f_d3eb_ff92),
];

/// FNV-1a.
fn digest(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn figures(report: &Report) -> String {
    let mut text = String::new();
    for one in &report.streams {
        let _ = write!(
            text,
            "{} {} {} {} {} {} {};",
            one.offered,
            one.in_time,
            one.late,
            one.refused,
            one.refused_early,
            one.refused_late,
            one.failed
        );
    }
    for model in &report.models {
        let latency = &model.latency;
        let quantiles = [0.1, 0.5, 0.9, 0.99, 1.0].map(|at| latency.value_at_quantile(at));
        let _ = write!(text, "{} {} {quantiles:?};", model.batches, model.rows);
    }
    for tenth in &report.tenths {
        let _ = write!(text, "{} {} {};", tenth.offered, tenth.in_time, tenth.late);
    }
    let _ = write!(text, "{:.6} {}", report.busy_gpu_s, report.events);
    text
}

fn slow(streams: Vec<Stream>) -> Scenario {
    let curve = Curve::Linear { fixed_ms: 10.0, row_ms: 1.0 };
    let scenario = Scenario::routed(curve, 32, Duration::from_millis(50));
    Scenario { streams, noise: 0.1, seed: 7, ..scenario }
}

fn at_loads(rule: Batching) -> u64 {
    let loads = [0.5, 1.0, 2.0]
        .map(|load| figures(&slow(vec![Stream::plain(load * CAPACITY)]).run(&|| rule.rule())));
    digest(&loads.concat())
}

fn mixed() -> Vec<(&'static str, Scenario)> {
    let stream = |load: f64, weight, class| Stream { rate: load * CAPACITY, weight, class };
    let batch = vec![stream(0.6, 1.0, Class::Interactive), stream(0.6, 1.0, Class::Batch)];
    let tenants = vec![stream(1.6, 1.0, Class::Interactive), stream(0.3, 2.0, Class::Interactive)];
    let shapes = Scenario { shapes: 3, replicas: 2, ..slow(vec![Stream::plain(2.4 * CAPACITY)]) };
    let slowing = Scenario {
        slowdown: Some((Duration::from_secs(3), 2.0)),
        ..slow(vec![Stream::plain(0.8 * CAPACITY)])
    };
    vec![
        ("classes", slow(batch)),
        ("tenants", slow(tenants)),
        ("shapes", shapes),
        ("slowing", slowing),
    ]
}

/// Every run by name: each rule at half, once and twice what can be served; tenants, classes and
/// shapes; and studies from files, as `sluice simulate` prints them.
fn runs() -> Vec<(&'static str, u64)> {
    let mut runs = Vec::new();
    for (name, rule) in RULES {
        runs.push((name, at_loads(rule)));
    }
    for (name, scenario) in mixed() {
        runs.push((name, digest(&figures(&scenario.run(&|| Batching::Slo.rule())))));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim");
    for name in ["parva-2", "chaos", "two-gpus"] {
        let mut study =
            Study::load(&folder.join(format!("{name}.toml"))).expect("a bundled scenario");
        study.terms.duration = study.terms.duration.min(Duration::from_secs(15));
        let run = simulate(&study, 3).unwrap_or_else(|error| panic!("{name}, seed 3: {error}"));
        runs.push((name, digest(&serde_json::to_string(&run).expect("a summary is JSON"))));
    }
    runs
}

#[test]
fn runs_without_a_timeout_are_what_they_were() {
    let found = runs();
    let shown: String =
        found.iter().map(|(name, it)| format!("    ({name:?}, {it:#x}),\n")).collect();
    assert_eq!(found, GOLDEN, "the digests are now:\n{shown}");
}

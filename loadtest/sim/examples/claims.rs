//! Runs many seeds of `chaos.toml`, every claim checked after every event, and says how it went.

use std::path::Path;

use sim::{
    place,
    report::Outcome,
    study::Study,
    world::{self, Checks},
};

const SEEDS: u64 = 1_000;

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
#[expect(clippy::disallowed_methods, reason = "the time that passes is what is measured")]
fn main() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim/chaos.toml");
    let study = Study::load(&file).unwrap_or_else(|error| panic!("{error}"));
    let began = std::time::Instant::now();
    let (mut events, mut faults, mut total) = (0, 0, Outcome::default());
    for seed in 0..SEEDS {
        let fleet = place::fleet(&study, seed).unwrap_or_else(|error| panic!("{error}"));
        faults += fleet.faults.len();
        let checks = Checks { every: 1, ..Checks::default() };
        let report = world::run(&fleet, checks).unwrap_or_else(|broken| panic!("{broken}"));
        events += report.events;
        total = total.plus(report.total());
    }
    let Outcome { offered, in_time, late, refused, failed, .. } = total;
    println!(
        "| seeds | faults | events | requests | in time | late | refused | failed | claims broken | took |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    println!(
        "| {SEEDS} | {faults} | {events} | {offered} | {in_time} | {late} | {refused} | {failed} | 0 | {:.1} s |",
        began.elapsed().as_secs_f64()
    );
}

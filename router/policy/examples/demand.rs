//! What following the demand saves: two loads, three ways to serve them, and a plot.
//!
//! `cargo run --release -p policy --example demand [SVG]` prints the table of docs/benchmarks.md and,
//! given a path, draws the fourteen days there.

#[path = "../tests/demand/world.rs"]
mod world;

use std::{fmt::Write, time::Duration};

use world::{Outcome, Way, World, production};

const TRACE: &str = include_str!("../tests/data/servegen_m-small_rate_10min.csv");
/// Replicas that one GPU holds: the smallest slices of an A100.
const PER_GPU: f64 = 7.0;
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 320.0;

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn main() -> std::io::Result<()> {
    let doubling = |at: f64| 800.0 * (1.0 + ((at - 300.0) / 10.0).clamp(0.0, 1.0));
    let (rate, length) = production(TRACE);
    let short = World {
        rate: &doubling,
        length: Duration::from_secs(600),
        tick: Duration::from_secs(1),
        replica_rps: 25.0,
        load_time: Duration::from_secs(5),
        slo: Duration::from_millis(500),
        seed: 1,
    };
    let long = World {
        rate: &rate,
        length,
        tick: Duration::from_secs(10),
        load_time: Duration::from_secs(30),
        ..short
    };
    println!(
        "| load | replicas | in time | GPU-hours | of static peak | of clairvoyant | changes |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (name, world) in [("doubles in 10 s", &short), ("14 days of production", &long)] {
        let outcomes = [
            ("as forecast", world.run(Way::Forecast)),
            ("static, for the peak", world.run(Way::Peak)),
            ("clairvoyant", world.run(Way::Clairvoyant)),
        ];
        let (peak, known) = (outcomes[1].1.replica_hours, outcomes[2].1.replica_hours);
        for (way, outcome) in &outcomes {
            println!(
                "| {name} | {way} | {:.3} % | {:.2} | {:.0} % | {:.0} % | {} |",
                outcome.attained * 100.0,
                outcome.replica_hours / PER_GPU,
                outcome.replica_hours / peak * 100.0,
                outcome.replica_hours / known * 100.0,
                outcome.changes
            );
        }
        if let (Some(path), "14 days of production") = (std::env::args().nth(1), name) {
            std::fs::write(path, plot(&outcomes[0].1))?;
        }
    }
    Ok(())
}

/// Demand and what is provided over the days.
fn plot(outcome: &Outcome) -> String {
    let hours = outcome.curve.last().map_or(1.0, |(at, ..)| *at).max(1.0);
    let most = outcome.curve.iter().map(|(_, _, provided)| *provided).fold(1.0, f64::max);
    let line = |value: fn(&(f64, f64, f64)) -> f64| {
        let points = outcome.curve.iter().map(|point| {
            let (x, y) = (point.0 / hours * WIDTH, HEIGHT - value(point) / most * HEIGHT);
            format!("{x:.1},{y:.1}")
        });
        points.collect::<Vec<_>>().join(" ")
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-60 -20 {} {}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n",
        WIDTH + 80.0,
        HEIGHT + 60.0
    );
    for day in 0..=(hours / 24.0) as u32 {
        let x = f64::from(day) * 24.0 / hours * WIDTH;
        writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{HEIGHT}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{day} d</text>",
            HEIGHT + 16.0
        )
        .expect("strings grow");
    }
    for part in 0..=4 {
        let y = HEIGHT - f64::from(part) / 4.0 * HEIGHT;
        let rate = f64::from(part) / 4.0 * most;
        writeln!(svg, "<text x=\"-8\" y=\"{y:.1}\" text-anchor=\"end\">{rate:.0}</text>")
            .expect("strings grow");
    }
    let lines = [
        ("#d55e00", line(|point| point.2), "provided, requests/s"),
        ("#0072b2", line(|point| point.1), "demand, requests/s"),
    ];
    for (index, (colour, points, name)) in lines.iter().enumerate() {
        writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1\" points=\"{points}\"/>\
             <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            index * 180,
            HEIGHT + 36.0
        )
        .expect("strings grow");
    }
    svg + "</svg>\n"
}

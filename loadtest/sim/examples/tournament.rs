//! Prints goodput by rule, curve and load as a table for docs/benchmarks.md.

use sim::tournament::{COURSES, ENTRANTS, LOADS, goodput};

const SEEDS: u64 = 20;

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn main() {
    let names: Vec<&str> = ENTRANTS.iter().map(|(name, _)| *name).collect();
    println!("| curve | load | {} | best fixed size | clairvoyant |", names.join(" | "));
    println!("|---|---|{}---|---|", "---|".repeat(names.len()));
    for course in COURSES {
        for load in LOADS {
            let scores: Vec<String> = ENTRANTS
                .iter()
                .map(|(_, rule)| {
                    let outcome = course.outcome(load, SEEDS, &|| rule(&course));
                    format!("{:.0}", goodput(&outcome, SEEDS))
                })
                .collect();
            let (size, fixed) = course.best_fixed(load, SEEDS);
            let best = goodput(&fixed, SEEDS);
            let most =
                course.clairvoyant(load).map_or_else(String::new, |most| format!("{most:.0}"));
            let scores = scores.join(" | ");
            println!("| {} | {load} | {scores} | {best:.0} ({size}) | {most} |", course.name);
        }
    }
}

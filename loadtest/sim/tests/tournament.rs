//! Our rule against every other and against the best fixed size, on five curves and four loads, and
//! on two of them under objectives of 25 and 10 ms.
//!
//! Goodput is requests answered by their deadline per second. Ours must reach 95 % of the best fixed
//! batch size, found by trying all of them, and 99 % of every other rule, over 20 seeds each; and 90 %
//! of what one could serve who knew all arrivals beforehand.

use sim::tournament::{COURSES, Course, ENTRANTS, LOADS, goodput};

const SEEDS: u64 = 20;
/// For models that are asked so often that a few runs say as much.
const FEWER: u64 = 5;

fn reaches_99_of_rules_and_95_of_sizes(name: &str, seeds: u64) {
    let course: &Course =
        COURSES.iter().find(|course| course.name == name).expect("a course of that name");
    for load in LOADS {
        let score = |rule: usize| {
            let outcome = course.outcome(load, seeds, &|| ENTRANTS[rule].1(course));
            goodput(&outcome, seeds)
        };
        let ours = score(0);
        for (rule, (rival, _)) in ENTRANTS.iter().enumerate().skip(1) {
            let theirs = score(rule);
            assert!(ours >= 0.99 * theirs, "{name} x{load}: slo {ours:.1}, {rival} {theirs:.1}");
        }
        let (size, outcome) = course.best_fixed(load, seeds);
        let fixed = goodput(&outcome, seeds);
        assert!(ours >= 0.95 * fixed, "{name} x{load}: slo {ours:.1}, size {size} {fixed:.1}");
        if let Some(most) = course.clairvoyant(load) {
            assert!(ours >= 0.9 * most, "{name} x{load}: slo {ours:.1}, clairvoyant {most:.1}");
        }
    }
}

#[test]
fn slo_reaches_99_of_rules_and_95_of_sizes_on_a_flat_curve() {
    reaches_99_of_rules_and_95_of_sizes("flat", SEEDS);
}

#[test]
fn slo_reaches_99_of_rules_and_95_of_sizes_on_a_linear_curve() {
    reaches_99_of_rules_and_95_of_sizes("linear", SEEDS);
}

#[test]
fn slo_reaches_99_of_rules_and_95_of_sizes_with_a_knee() {
    reaches_99_of_rules_and_95_of_sizes("knee", SEEDS);
}

#[test]
fn slo_reaches_99_of_rules_and_95_of_sizes_on_a_steep_curve() {
    reaches_99_of_rules_and_95_of_sizes("steep", SEEDS);
}

#[test]
fn slo_reaches_99_of_rules_and_95_of_sizes_on_a_noisy_curve() {
    reaches_99_of_rules_and_95_of_sizes("noisy", SEEDS);
}

#[test]
fn slo_reaches_99_of_rules_and_95_of_sizes_if_two_are_late() {
    reaches_99_of_rules_and_95_of_sizes("linear, 25 ms", SEEDS);
    reaches_99_of_rules_and_95_of_sizes("fast, 10 ms", FEWER);
}

#[test]
fn slo_reaches_99_of_rules_and_95_of_sizes_at_25_ms() {
    reaches_99_of_rules_and_95_of_sizes("fast, 25 ms", FEWER);
}

//! Our rule against every other and against the best fixed size, on five curves and four loads.
//!
//! Goodput is requests answered by their deadline per second. Ours must reach 95 % of the best fixed
//! batch size, found by trying all of them, and 99 % of every other rule, over 20 seeds each.

use sim::tournament::{COURSES, Course, ENTRANTS, LOADS, goodput};

const SEEDS: u64 = 20;

fn ours_holds_its_own_on(name: &str) {
    let course: &Course =
        COURSES.iter().find(|course| course.name == name).expect("a course of that name");
    for load in LOADS {
        let score = |rule: usize| {
            let outcome = course.outcome(load, SEEDS, &|| ENTRANTS[rule].1(course.max_batch));
            goodput(&outcome, SEEDS)
        };
        let ours = score(0);
        for (rule, (rival, _)) in ENTRANTS.iter().enumerate().skip(1) {
            let theirs = score(rule);
            assert!(ours >= 0.99 * theirs, "{name} x{load}: slo {ours:.1}, {rival} {theirs:.1}");
        }
        let (size, outcome) = course.best_fixed(load, SEEDS);
        let fixed = goodput(&outcome, SEEDS);
        assert!(ours >= 0.95 * fixed, "{name} x{load}: slo {ours:.1}, size {size} {fixed:.1}");
    }
}

#[test]
fn no_rule_or_fixed_size_beats_ours_on_a_flat_curve() {
    ours_holds_its_own_on("flat");
}

#[test]
fn no_rule_or_fixed_size_beats_ours_on_a_linear_curve() {
    ours_holds_its_own_on("linear");
}

#[test]
fn no_rule_or_fixed_size_beats_ours_on_a_curve_with_a_knee() {
    ours_holds_its_own_on("knee");
}

#[test]
fn no_rule_or_fixed_size_beats_ours_on_a_steep_curve() {
    ours_holds_its_own_on("steep");
}

#[test]
fn no_rule_or_fixed_size_beats_ours_on_a_noisy_curve() {
    ours_holds_its_own_on("noisy");
}

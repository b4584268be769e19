//! Fifty random fleets: every plan legal, serving its demand, and near the bound.

use policy::plan::{Plan, solve};

use super::{checker, fleets};

/// Within 2 % of the bound, or one GPU more than it proves to be needed.
fn is_near(plan: &Plan) -> bool {
    let used = f64::from(plan.gpus_used);
    used <= plan.bound_gpus * 1.02 || plan.gpus_used <= plan.fewest_gpus() + 1
}

fn check(seeds: std::ops::Range<u64>, share_slices: bool) {
    for seed in seeds {
        let problem = fleets::problem(seed, share_slices);
        let plan = solve(&problem).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let problems = checker::problems(&problem, &plan);
        assert!(problems.is_empty(), "seed {seed}: {problems:#?}");
        let (used, bound) = (plan.gpus_used, plan.bound_gpus);
        assert!(is_near(&plan), "seed {seed}: {used} GPUs, the bound is {bound}");
        assert!(plan.lower_bound_gpus <= bound + 1e-6, "seed {seed}: {plan:?}");
    }
}

#[test]
fn fifty_unshared_fleets_are_planned_near_the_bound() {
    check(50..100, false);
}

#[test]
fn shared_fleets_are_planned_near_the_bound_first_half() {
    check(50..75, true);
}

#[test]
fn shared_fleets_are_planned_near_the_bound_second_half() {
    check(75..100, true);
}

#[test]
fn the_same_problem_has_the_same_plan_byte_for_byte() {
    for seed in [3, 11] {
        let print = |problem| format!("{:?}", solve(&problem).unwrap());
        let (first, second) = (fleets::problem(seed, true), fleets::problem(seed, true));
        assert!(print(first) == print(second), "seed {seed}");
    }
}

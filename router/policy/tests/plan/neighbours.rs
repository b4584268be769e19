//! Plans for models that slow each other.

use policy::{
    interference::Draw,
    plan::{Problem, baselines::Planner, misses, solve},
};

use super::{checker, scenarios::scenario};

/// Scenario 3 with models that draw more than their share of the board's power.
fn hungry() -> Problem {
    let mut problem = scenario(3, false);
    for (index, model) in problem.models.iter_mut().enumerate() {
        let power = if index % 3 == 0 { 1.6 } else { 1.1 };
        model.load = Draw { power, bandwidth: 0.8, pcie: 0.05 };
    }
    problem.fleet[0].count = 20;
    problem
}

#[test]
fn interference_aware_plan_meets_what_a_blind_one_misses() {
    let problem = hungry();
    let blind = Planner::Blind.plan(&problem).unwrap();
    assert!(!misses(&problem, &blind).is_empty(), "nobody is slowed: this test shows nothing");
    let aware = solve(&problem).unwrap();
    assert_eq!(misses(&problem, &aware), [0_usize; 0]);
    let problems = checker::problems(&problem, &aware);
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(aware.gpus_used >= blind.gpus_used);
}

#[test]
fn without_loads_both_are_the_same() {
    let problem = scenario(2, true);
    assert_eq!(solve(&problem), Planner::Blind.plan(&problem));
    assert!(misses(&problem, &solve(&problem).unwrap()).is_empty());
}

//! GPUs kept free, replicas kept within their limits and apart, and fleets that are too small.

use policy::plan::{PlanError, Rules, shortfall, solve};

use super::{checker, scenarios::scenario};

#[test]
fn gpus_kept_for_failures_are_not_used() {
    let mut problem = scenario(2, false);
    problem.fleet[0].count = 4;
    problem.rules = Rules { spare_gpus: 1, ..problem.rules };
    assert_eq!(solve(&problem).unwrap().gpus_used, 3);
    problem.rules.spare_gpus = 2;
    assert_eq!(solve(&problem), Err(PlanError::TooSmall { gpus: 2 }));
    let more: Vec<_> =
        shortfall(&problem).iter().map(|(kind, count)| (kind.name.as_str(), *count)).collect();
    assert_eq!(more, [("A100-80GB", Some(1))]);
}

#[test]
fn a_fleet_that_is_far_too_small_is_refused() {
    for share_slices in [false, true] {
        let mut problem = scenario(1, share_slices);
        problem.fleet[0].count = 1;
        problem.models[0].demand_rps = 100_000.0;
        assert_eq!(solve(&problem), Err(PlanError::TooSmall { gpus: 1 }));
    }
}

#[test]
fn replicas_of_a_model_are_on_different_gpus_where_they_can_be() {
    let mut problem = scenario(2, false);
    for model in &mut problem.models {
        model.replicas_min = 2;
    }
    let plan = solve(&problem).unwrap();
    assert!(checker::problems(&problem, &plan).is_empty());
    for (index, model) in problem.models.iter().enumerate() {
        let on = |slice: &&policy::plan::Slice| slice.replicas.iter().any(|one| one.model == index);
        let mut gpus: Vec<usize> = plan.slices.iter().filter(on).map(|slice| slice.gpu).collect();
        let count = gpus.len();
        gpus.dedup();
        assert!(gpus.len() > 1, "all {count} replicas of {} are on one GPU", model.name);
    }
}

#[test]
fn a_model_with_at_most_one_replica_has_one_large_enough() {
    let mut problem = scenario(3, false);
    for model in &mut problem.models {
        model.replicas_max = 1;
    }
    let plan = solve(&problem).unwrap();
    let problems = checker::problems(&problem, &plan);
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn memory_decides_how_small_a_slice_may_be() {
    let mut problem = scenario(1, false);
    for model in &mut problem.models {
        model.memory_mib = Some(30_000);
        model.replicas_max = 4;
    }
    let plan = solve(&problem).unwrap();
    let problems = checker::problems(&problem, &plan);
    assert!(problems.is_empty(), "{problems:#?}");
    let smallest = plan.slices.iter().map(|slice| slice.position.profile().memory_slices).min();
    assert_eq!(smallest, Some(4));
}

#[test]
fn what_no_slice_can_do_is_named_with_its_limit() {
    let mut problem = scenario(1, true);
    problem.models[2].slo_ms = 2.0;
    let error = solve(&problem).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no slice of the fleet runs a batch of \"inceptionv3\" within 0.9 ms, its share of the \
         objective; raise slo_ms, or latency_share in [planner]"
    );
}

#[test]
fn model_without_memory_anywhere_is_named() {
    let mut problem = scenario(1, true);
    problem.models[1].memory_mib = Some(200_000);
    let model = problem.models[1].name.clone();
    assert_eq!(solve(&problem), Err(PlanError::Homeless { model }));
}

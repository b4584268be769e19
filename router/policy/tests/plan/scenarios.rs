//! The three published scenarios: the known optima, and what the rivals need.

use policy::{
    interference::Draw,
    plan::{Gpus, Measured, Model, Plan, Problem, Rules, baselines::Planner, solve, solve_roomily},
};

use super::{checker, fleets};

/// ParvaGPU's scenario of that number, as `configs/plans` has it.
pub(crate) fn scenario(number: u32, share_slices: bool) -> Problem {
    let path = fleets::configs().join(format!("plans/scenario-{number}.toml"));
    let file: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let models = file["model"].as_array().unwrap().iter().map(|table| {
        let number = |key: &str| {
            let value = &table[key];
            value.as_float().unwrap_or_else(|| value.as_integer().unwrap() as f64)
        };
        let name = table["name"].as_str().unwrap();
        Model {
            name: name.to_owned(),
            demand_rps: number("demand_rps"),
            slo_ms: number("slo_ms"),
            measured: vec![Measured { kind: None, rows: fleets::rows(name) }],
            max_batch: None,
            memory_mib: None,
            replicas_min: 1,
            replicas_max: u32::MAX,
            load: Draw::default(),
            home: policy::fleet::Home::Any,
            slowdown: 1.0,
        }
    });
    Problem {
        models: models.collect(),
        fleet: vec![Gpus { kind: mig::kind("A100-80GB").unwrap(), count: 11 }],
        rules: Rules { share_slices, ..Rules::default() },
    }
}

fn gpus(number: u32, share_slices: bool) -> u32 {
    let problem = scenario(number, share_slices);
    let plan = solve(&problem).unwrap();
    let problems = checker::problems(&problem, &plan);
    assert!(problems.is_empty(), "scenario {number}: {problems:#?}");
    assert_eq!(plan.gpus_used, plan.fewest_gpus(), "scenario {number} is proven");
    plan.gpus_used
}

#[test]
fn with_a_slice_to_each_model_the_exact_optima_are_reached() {
    assert_eq!([1, 2, 3].map(|number| gpus(number, false)), [2, 3, 5]);
}

#[test]
fn with_shared_slices_one_gpu_less_is_enough_each_time() {
    assert_eq!([1, 2, 3].map(|number| gpus(number, true)), [1, 2, 4]);
}

#[test]
fn headroom_is_spread_evenly_on_the_same_gpus() {
    for number in 1..=3 {
        let problem = scenario(number, true);
        let (tight, roomy) = (solve(&problem).unwrap(), solve_roomily(&problem).unwrap());
        assert!(checker::problems(&problem, &roomy).is_empty(), "scenario {number}");
        assert_eq!((roomy.gpus_used, roomy.bound_gpus), (tight.gpus_used, tight.bound_gpus));
        let least = |plan: &Plan| {
            let models = problem.models.iter().enumerate();
            let room = models.map(|(index, model)| plan.capacity_rps(index) / model.demand_rps);
            room.fold(f64::INFINITY, f64::min)
        };
        assert!(least(&roomy) >= least(&tight), "scenario {number}");
    }
    let problem = scenario(3, true);
    let roomy = solve_roomily(&problem).unwrap();
    let each = problem.models.iter().enumerate();
    let mut room = each.map(|(index, model)| roomy.capacity_rps(index) / model.demand_rps);
    assert!(room.all(|part| part > 1.03), "three in a hundred for every model of scenario 3");
}

#[test]
fn rivals_make_legal_plans_and_never_better_ones() {
    for number in 1..=3 {
        let problem = scenario(number, true);
        let ours = solve(&problem).unwrap().gpus_used;
        for planner in Planner::ALL {
            let plan = planner.plan(&problem).unwrap();
            let problems = checker::problems(&problem, &plan);
            assert!(problems.is_empty(), "{} {number}: {problems:#?}", planner.name());
            assert!(plan.gpus_used >= ours, "{} {number}", planner.name());
        }
    }
}

#[test]
fn rivals_need_what_their_publications_say() {
    let needs = |planner: Planner| {
        [1, 2, 3].map(|number| planner.plan(&scenario(number, false)).unwrap().gpus_used)
    };
    assert_eq!(needs(Planner::WholeGpus), [6, 11, 11]);
    assert_eq!(needs(Planner::Parva), [2, 3, 5]);
}

//! Following a change of demand with few moves.

use std::collections::BTreeMap;

use mig::{Geometry, Position};
use policy::{
    interference::Draw,
    plan::{
        Gpus, Measured, Model, Problem, Replan, Replica, Row, Rules, Slice, moves, replan, solve,
    },
};
use simgpu::random::Random;

use super::{
    checker,
    fleets::{self, between},
    scenarios::scenario,
};

/// A model that serves `rps` on one compute slice, and less than as many times that on more.
fn model(name: &str, rps: f64, demand_rps: f64) -> Model {
    let row = |profile: &str, times: f64| Row {
        profile: profile.to_owned(),
        batch: 1,
        processes: 1,
        throughput_rps: rps * times,
    };
    Model {
        name: name.to_owned(),
        demand_rps,
        slo_ms: 1_000.0,
        measured: vec![Measured {
            kind: None,
            rows: vec![row("1g.6gb", 1.0), row("2g.12gb", 1.9), row("4g.24gb", 3.6)],
        }],
        max_batch: None,
        memory_mib: None,
        replicas_min: 1,
        replicas_max: u32::MAX,
        load: Draw::default(),
        home: policy::fleet::Home::Any,
        slowdown: 1.0,
    }
}

fn small(seed: u64) -> Problem {
    let mut random = Random::new(seed);
    let models = (0..3).map(|index| {
        let rps = between(&mut random, 50.0, 150.0);
        let demand_rps = rps * between(&mut random, 0.5, 2.2);
        model(["a", "b", "c"][index], rps, demand_rps)
    });
    Problem {
        models: models.collect(),
        fleet: vec![Gpus { kind: mig::kind("A30-24GB").unwrap(), count: 3 }],
        rules: Rules { share_slices: false, ..Rules::default() },
    }
}

/// What one GPU can be: requests per second for each model, and the moves that takes.
type Content = (Vec<u64>, usize);

/// Every content of a GPU, the fewest moves of each, from what is on it now.
fn contents(problem: &Problem, current: &[&Slice]) -> Vec<Content> {
    let kind = problem.fleet[0].kind;
    let now: Vec<(Position, usize)> =
        current.iter().map(|slice| (slice.position, slice.replicas[0].model)).collect();
    let mut best: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
    for geometry in Geometry::maximal(kind, |profile| !profile.media) {
        let mut partial: Vec<Content> = vec![(vec![0; problem.models.len()], 0)];
        for position in geometry.positions() {
            let mut next = partial.clone();
            for (rates, count) in &partial {
                for (index, model) in problem.models.iter().enumerate() {
                    let rows = &model.measured[0].rows;
                    let row = rows.iter().find(|row| row.profile == position.profile().name);
                    let mut rates = rates.clone();
                    rates[index] += (row.unwrap().throughput_rps * 1e6) as u64;
                    next.push((rates, count + usize::from(!now.contains(&(*position, index)))));
                }
            }
            partial = next;
        }
        for (rates, count) in partial {
            let least = best.entry(rates).or_insert(count);
            *least = count.min(*least);
        }
    }
    best.into_iter().collect()
}

/// The fewest moves to any plan on at most `gpus` GPUs, by trying everything.
fn fewest_moves(problem: &Problem, current: &[Slice], gpus: u32) -> usize {
    let zero = vec![0; problem.models.len()];
    let wanted: Vec<u64> =
        problem.models.iter().map(|model| (model.demand_rps * 1e6) as u64).collect();
    // Rates beyond what is wanted are cut off, so that few states are told apart.
    let mut states: BTreeMap<(Vec<u64>, u32), usize> = BTreeMap::from([((zero.clone(), 0), 0)]);
    for gpu in 0..problem.fleet[0].count as usize {
        let on_gpu: Vec<&Slice> = current.iter().filter(|slice| slice.gpu == gpu).collect();
        let mut next: BTreeMap<(Vec<u64>, u32), usize> = BTreeMap::new();
        for (rates, count) in contents(problem, &on_gpu) {
            for ((so_far, used), moved) in &states {
                let used = used + u32::from(rates != zero);
                let sum = so_far.iter().zip(&rates).zip(&wanted);
                let sum: Vec<u64> = sum.map(|((a, b), most)| (a + b).min(*most)).collect();
                let least = next.entry((sum, used)).or_insert(usize::MAX);
                *least = (moved + count).min(*least);
            }
        }
        states = next;
    }
    let enough = states.iter().filter(|((rates, used), _)| *rates == wanted && *used <= gpus);
    enough.map(|(_, moved)| *moved).min().unwrap()
}

#[test]
fn replan_takes_at_most_a_tenth_more_moves_than_the_fewest() {
    let (mut anew, mut total, mut least) = (0, 0, 0);
    for seed in 0..150 {
        let mut problem = small(seed);
        let before = solve(&problem).unwrap().slices;
        let mut random = Random::new(seed + 1_000);
        let changed = random.below(3) as usize;
        problem.models[changed].demand_rps *= between(&mut random, 0.4, 2.5);
        let Ok(Replan { plan, moves: count, anew: whole }) = replan(&problem, &before) else {
            continue;
        };
        let problems = checker::problems(&problem, &plan);
        assert!(problems.is_empty(), "seed {seed}: {problems:#?}");
        assert_eq!(count, moves(&before, &plan.slices), "seed {seed}");
        let fewest = fewest_moves(&problem, &before, plan.gpus_used);
        anew += usize::from(whole);
        total += count;
        least += fewest;
    }
    assert!(
        total as f64 <= 1.1 * least as f64,
        "{total} moves, {least} are enough; {anew} whole plans"
    );
}

#[test]
fn what_is_enough_is_left_alone() {
    let problem = fleets::problem(51, true);
    let before = solve(&problem).unwrap();
    let same = replan(&problem, &before.slices).unwrap();
    assert_eq!((same.moves, same.anew), (0, false));
    assert_eq!(same.plan.slices, before.slices);
}

#[test]
fn less_demand_gives_slices_back_and_moves_nothing() {
    let mut problem = fleets::problem(52, false);
    let before = solve(&problem).unwrap();
    for model in &mut problem.models {
        model.demand_rps *= 0.4;
    }
    let after = replan(&problem, &before.slices).unwrap();
    assert_eq!((after.moves, after.anew), (0, false));
    assert!(after.plan.slices.len() < before.slices.len());
    for (index, model) in problem.models.iter().enumerate() {
        let left_rps = |one: &Replica| after.plan.capacity_rps(index) - one.capacity_rps;
        let few = after.plan.replicas(index).count() <= model.replicas_min as usize;
        let needed = |one: &Replica| few || left_rps(one) < model.demand_rps;
        assert!(after.plan.replicas(index).all(needed), "{} has too many", model.name);
    }
    let problems = checker::problems(&problem, &after.plan);
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_plan_made_anew_keeps_what_it_can_in_place() {
    for seed in 53..59 {
        let mut problem = fleets::problem(seed, false);
        let before = solve(&problem).unwrap();
        problem.models[0].demand_rps *= 1.5;
        let bound = policy::plan::solve_from(&problem, &before.slices).unwrap();
        let unbound = solve(&problem).unwrap();
        let (kept, fresh) =
            (moves(&before.slices, &bound.slices), moves(&before.slices, &unbound.slices));
        assert!(kept <= fresh, "seed {seed}: {kept} moves, {fresh} without looking");
        assert!(
            kept * 10 <= before.slices.len() * 9,
            "seed {seed}: {kept} moves of {}",
            before.slices.len()
        );
        assert!(checker::problems(&problem, &bound).is_empty(), "seed {seed}");
    }
}

#[test]
fn without_room_the_fleet_is_planned_anew() {
    let mut problem = scenario(2, false);
    problem.fleet[0].count = 3;
    let before = solve(&problem).unwrap();
    assert_eq!(before.gpus_used, 3);
    for model in &mut problem.models {
        model.demand_rps *= if model.name == "bert" { 2.0 } else { 0.9 };
    }
    let after = replan(&problem, &before.slices);
    let problems = after.map(|after| checker::problems(&problem, &after.plan)).unwrap();
    assert!(problems.is_empty(), "{problems:#?}");
}

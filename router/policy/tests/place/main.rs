//! The placer in a small world: what it decides is done, replicas load and drain in their own time,
//! demands change, GPUs fail, jobs borrow slices. Whatever the seed, nothing is ever cut that is in
//! use, nobody gets another's slice, and what is served stays served while there is room.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod world;

use policy::place::{Action, State, place};
use world::{Random, World, model};

#[test]
fn whatever_happens_geometry_is_legal_and_nobody_gets_anothers_slice() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut world = World::new(&mut random, true);
        for round in 0..120 {
            if random.below(12) == 0 {
                world.change(&mut random);
            }
            world
                .step(&mut random)
                .unwrap_or_else(|what| panic!("seed {seed}, round {round}: {what}"));
        }
    }
}

#[test]
fn what_is_served_stays_served_while_there_is_room() {
    for seed in 100..130 {
        let mut random = Random(seed);
        let mut world = World::new(&mut random, false);
        world.converge(&mut random, seed);
        for _ in 0..4 {
            world.change_demand(&mut random, 0.7, 1.4);
            for round in 0..60 {
                let before = world.ready();
                let demand = world.demands();
                world.step(&mut random).unwrap();
                for (index, (after, before)) in world.ready().iter().zip(&before).enumerate() {
                    let kept = before.min(demand[index]) * (1.0 - 1e-9);
                    assert!(
                        *after >= kept || world.said_no_room,
                        "seed {seed}, round {round}: model {index} fell from {before} to {after}, \
                         {} are asked for",
                        demand[index]
                    );
                }
            }
        }
    }
}

#[test]
fn a_steady_load_converges_and_then_nothing_moves() {
    for seed in 200..230 {
        let mut random = Random(seed);
        let mut world = World::new(&mut random, false);
        let rounds = world.converge(&mut random, seed);
        for _ in 0..10 {
            let decision = place(&world.snapshot(true));
            assert_eq!(decision.steps, [], "seed {seed}, {rounds} rounds: {decision:#?}");
            world.step(&mut random).unwrap();
        }
        for (index, (ready, demand)) in world.ready().iter().zip(world.demands()).enumerate() {
            assert!(
                *ready >= demand * (1.0 - 1e-9),
                "seed {seed}: {index} has {ready} of {demand}"
            );
        }
    }
}

#[test]
fn a_failed_gpu_is_left_once_others_have_taken_over() {
    for seed in 300..310 {
        let mut random = Random(seed);
        let mut world = World::new(&mut random, false);
        world.converge(&mut random, seed);
        let used = world.used().next().unwrap();
        world.gpus[used].healthy = false;
        world.converge(&mut random, seed);
        assert!(
            world.gpus[used].slices.iter().all(|slice| slice.replicas.is_empty()),
            "seed {seed}"
        );
        for (ready, demand) in world.ready().iter().zip(world.demands()) {
            assert!(*ready >= demand * (1.0 - 1e-9), "seed {seed}: {ready} of {demand}");
        }
    }
}

#[test]
fn a_load_that_shrinks_gives_gpus_back() {
    for seed in 400..410 {
        let mut random = Random(seed);
        let mut world = World::new(&mut random, false);
        world.converge(&mut random, seed);
        let before = world.used().count();
        for index in 0..world.models.len() {
            world.models[index].demand_rps *= 0.3;
        }
        world.converge(&mut random, seed);
        let after = world.used().count();
        assert!(after < before || before == 1, "seed {seed}: {before} GPUs, then {after}");
    }
}

#[test]
fn of_a_surplus_those_that_start_go_first_and_then_the_least_busy() {
    let mut world = World::empty(1, vec![model("a", 100.0, 90.0)]);
    world.hold((0, "1g.10gb@0"), 0, State::Ready, 0.9);
    world.hold((0, "1g.10gb@1"), 0, State::Ready, 0.1);
    world.hold((0, "1g.10gb@2"), 0, State::Starting, 0.0);
    world.hold((0, "1g.10gb@3"), 0, State::Ready, 0.5);
    let stopped = |world: &World| -> Vec<u64> {
        let decision = place(&world.snapshot(false));
        let stops = decision.now().filter_map(|step| match step.action {
            Action::Stop { replica } => Some(replica),
            Action::Cut { .. } | Action::Start { .. } => None,
        });
        stops.collect()
    };
    assert_eq!(stopped(&world), [2, 1, 3]);
    world.models[0].demand_rps = 190.0;
    assert_eq!(stopped(&world), [2, 1]);
    world.models[0].replicas_min = 4;
    assert_eq!(stopped(&world), [0_u64; 0]);
}

#[test]
fn nothing_is_kept_of_a_model_that_nobody_asks_for_if_it_may_go() {
    let mut world = World::empty(1, vec![model("a", 100.0, 0.0)]);
    world.hold((0, "1g.10gb@0"), 0, State::Ready, 0.0);
    assert_eq!(place(&world.snapshot(false)).steps, []);
    world.models[0].replicas_min = 0;
    let decision = place(&world.snapshot(false));
    assert!(matches!(decision.steps[..], [ref one] if one.action == Action::Stop { replica: 0 }));
    world.models[0].demand_rps = 1.0;
    assert_eq!(place(&world.snapshot(false)).steps, []);
}

#[test]
fn where_there_is_no_room_for_both_the_least_harmful_goes_first_and_it_is_said() {
    let mut world = World::empty(1, vec![model("a", 100.0, 80.0), model("b", 100.0, 600.0)]);
    world.hold((0, "7g.80gb@0"), 0, State::Ready, 0.2);
    let decision = place(&world.snapshot(false));
    let first = &decision.steps[0];
    assert_eq!(first.action, Action::Stop { replica: 0 }, "{decision:#?}");
    assert!(first.why.contains("no room for both"), "{decision:#?}");
    assert!(decision.steps.iter().skip(1).all(|step| step.stage > 0), "{decision:#?}");
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers_and_the_rest_is_served() {
    let world = World::empty(1, vec![model("a", 100.0, 100_000.0), model("b", 100.0, 50.0)]);
    let decision = place(&world.snapshot(false));
    let of = |wanted: usize| {
        decision.target.placed.iter().filter(move |one| one.model == wanted).count()
    };
    assert!(of(0) >= 1 && of(1) == 1, "{decision:#?}");
    assert_eq!(decision.refusals.len(), 1, "{decision:#?}");
    assert!(decision.refusals[0].starts_with("a is to serve 100000.0 requests/s and gets "));
}

#[test]
fn lent_and_pinned_slices_and_gpus_that_cannot_be_cut_are_left_as_they_are() {
    let mut world = World::empty(2, vec![model("a", 100.0, 250.0)]);
    world.lend(0, "4g.40gb@0");
    world.hold((0, "1g.10gb@4"), 0, State::Ready, 0.1);
    world.gpus[0].slices.last_mut().unwrap().pinned = true;
    world.gpus[1].cuttable = false;
    world.cut(1, "2g.20gb@0");
    let decision = place(&world.snapshot(true));
    let places: Vec<String> =
        decision.target.placed.iter().map(|one| format!("{} {}", one.gpu, one.position)).collect();
    assert!(places.contains(&"0 1g.10gb@4".to_owned()), "{decision:#?}");
    assert!(
        places.iter().all(|place| !place.contains("@0") || place == "1 2g.20gb@0"),
        "{places:?}"
    );
    assert!(
        decision.refusals.iter().all(|told| told.starts_with("nothing is moved")),
        "{decision:#?}"
    );
}

#[test]
fn the_same_snapshot_has_the_same_decision() {
    let mut random = Random(5);
    let mut world = World::new(&mut random, true);
    for _ in 0..30 {
        world.step(&mut random).unwrap();
    }
    world.change(&mut random);
    let print = || format!("{:?}", place(&world.snapshot(true)));
    assert_eq!(print(), print());
}

#[test]
fn a_model_of_which_nothing_is_known_is_put_wherever_its_memory_fits() {
    let mut unknown = model("a", 100.0, 5.0);
    unknown.measured.clear();
    unknown.memory_mib = Some(15_000);
    let world = World::empty(1, vec![unknown]);
    let decision = place(&world.snapshot(false));
    let [placed] = &decision.target.placed[..] else { panic!("{decision:#?}") };
    assert!(placed.position.profile().memory_gib * 1024.0 >= 15_000.0, "{decision:#?}");
}

//! The placer in a small world: what it decides is done, replicas load and drain in their own time,
//! demands change, GPUs fail, jobs borrow slices. Whatever the seed, nothing is ever cut that is in
//! use, nobody gets another's slice, and what is served stays served while there is room.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod homes;
mod pinned;
mod world;

use policy::{
    place::{Action, State, place, room, wanted_back},
    plan::Model,
};
use simgpu::random::Random;
use world::{World, between, model};

#[test]
fn geometry_stays_legal_and_slices_have_one_owner() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
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
        let mut random = Random::new(seed);
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
        let mut random = Random::new(seed);
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
        let mut random = Random::new(seed);
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
        let mut random = Random::new(seed);
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
fn scale_down_stops_starting_then_least_busy_replicas() {
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
fn without_room_for_both_the_least_harmful_stops_first() {
    let mut world = World::empty(1, vec![model("a", 100.0, 80.0), model("b", 100.0, 600.0)]);
    world.hold((0, "7g.80gb@0"), 0, State::Ready, 0.2);
    let decision = place(&world.snapshot(false));
    let first = &decision.steps[0];
    assert_eq!(first.action, Action::Stop { replica: 0 }, "{decision:#?}");
    assert!(first.why.contains("no room for both"), "{decision:#?}");
    assert!(decision.steps.iter().skip(1).all(|step| step.stage > 0), "{decision:#?}");
}

#[test]
fn unplaced_demand_is_reported_and_the_rest_is_served() {
    let world = World::empty(1, vec![model("a", 100.0, 100_000.0), model("b", 100.0, 50.0)]);
    let decision = place(&world.snapshot(false));
    let of = |wanted: usize| {
        decision.target.placed.iter().filter(move |one| one.model == wanted).count()
    };
    assert!(of(0) >= 1 && of(1) == 1, "{decision:#?}");
    assert_eq!(decision.refusals.len(), 1, "{decision:#?}");
    assert!(decision.refusals[0].why.starts_with("a needs 100000.0 rows/s and gets "));
}

#[test]
fn lent_pinned_and_fixed_slices_are_left_alone() {
    let mut world = World::empty(2, vec![model("a", 100.0, 250.0)]);
    world.lend(0, "4g.40gb@0");
    world.hold((0, "1g.10gb@4"), 0, State::Ready, 0.1);
    world.pin(0, (0, "1g.10gb@4"));
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
        decision.refusals.iter().all(|told| told.why.starts_with("nothing is moved")),
        "{decision:#?}"
    );
}

#[test]
fn the_same_snapshot_has_the_same_decision() {
    let mut random = Random::new(5);
    let mut world = World::new(&mut random, true);
    for _ in 0..30 {
        world.step(&mut random).unwrap();
    }
    world.change(&mut random);
    let print = || format!("{:?}", place(&world.snapshot(true)));
    assert_eq!(print(), print());
}

#[test]
fn unmeasured_model_is_placed_by_memory_alone() {
    let mut unknown = model("a", 100.0, 5.0);
    unknown.measured.clear();
    unknown.memory_mib = Some(15_000);
    let world = World::empty(1, vec![unknown]);
    let decision = place(&world.snapshot(false));
    let [placed] = &decision.target.placed[..] else { panic!("{decision:#?}") };
    assert!(placed.position.profile().memory_gib * 1024.0 >= 15_000.0, "{decision:#?}");
}

#[test]
fn unmeasured_model_has_as_many_replicas_as_its_fewest() {
    let mut unknown = model("a", 100.0, 5_000.0);
    unknown.measured.clear();
    unknown.replicas_min = 3;
    unknown.replicas_max = 8;
    let world = World::empty(2, vec![unknown]);
    let decision = place(&world.snapshot(false));
    assert_eq!(decision.target.placed.len(), 3, "{decision:#?}");
}

/// A fleet whose GPUs cannot be cut, each one slice of `2g.20gb`.
fn fixed(gpus: usize, models: Vec<Model>) -> World {
    let mut world = World::empty(gpus, models);
    for gpu in 0..gpus {
        world.gpus[gpu].cuttable = false;
        world.cut(gpu, "2g.20gb@0");
    }
    world
}

fn sized(name: &str, memory_mib: u64) -> Model {
    let mut model = model(name, 100.0, 0.0);
    model.memory_mib = Some(memory_mib);
    model
}

/// What is done at once: `+GPU:MODEL` and `-REPLICA`.
fn now(world: &World) -> Vec<String> {
    let decision = place(&world.snapshot(false));
    let told = decision.now().filter_map(|step| match &step.action {
        Action::Start { gpu, model, .. } => Some(format!("+{gpu}:{model}")),
        Action::Stop { replica } => Some(format!("-{replica}")),
        Action::Cut { .. } => None,
    });
    told.collect()
}

#[test]
fn models_share_the_least_crowded_slices_by_memory() {
    let models = ["a", "b", "c", "d"].map(|name| sized(name, 8_000)).to_vec();
    let world = fixed(2, models);
    assert_eq!(now(&world), ["+0:0", "+1:1", "+0:2", "+1:3"]);
}

#[test]
fn model_that_fits_nowhere_is_named_and_others_served() {
    let world = fixed(1, vec![sized("a", 15_000), sized("b", 8_000)]);
    assert_eq!(now(&world), ["+0:0"]);
    let decision = place(&world.snapshot(false));
    let [refused] = &decision.refusals[..] else { panic!("{decision:#?}") };
    assert_eq!(refused.model, Some(1));
    assert!(refused.why.starts_with("a replica needs 8000 MiB; no slice has more than "));
}

#[test]
fn old_revision_stops_once_its_successor_is_ready() {
    let mut world = fixed(1, vec![sized("a", 8_000)]);
    world.hold((0, "2g.20gb@0"), 0, State::Ready, 0.5);
    world.gpus[0].slices[0].replicas[0].current = false;
    assert_eq!(now(&world), ["+0:0"]);
    world.hold((0, "2g.20gb@0"), 0, State::Starting, 0.0);
    assert_eq!(now(&world), [""; 0]);
    world.gpus[0].slices[0].replicas[1].state = State::Ready;
    assert_eq!(now(&world), ["-0"]);
}

#[test]
fn old_revision_stops_first_without_memory_for_both() {
    let mut world = fixed(1, vec![sized("a", 15_000)]);
    world.hold((0, "2g.20gb@0"), 0, State::Ready, 0.5);
    world.gpus[0].slices[0].replicas[0].current = false;
    assert_eq!(now(&world), ["-0"]);
    world.gpus[0].slices[0].replicas.clear();
    assert_eq!(now(&world), ["+0:0"]);
}

#[test]
fn replica_moves_before_its_slice_is_destroyed() {
    let mut world = fixed(2, vec![sized("a", 8_000)]);
    world.hold((0, "2g.20gb@0"), 0, State::Ready, 0.5);
    world.gpus[0].slices[0].doomed = true;
    assert_eq!(now(&world), ["+1:0"]);
    world.hold((1, "2g.20gb@0"), 0, State::Ready, 0.0);
    assert_eq!(now(&world), ["-0"]);
}

#[test]
fn replica_of_a_doomed_slice_shares_rather_than_displaces() {
    let mut world = World::empty(1, vec![sized("a", 8_000), sized("b", 8_000)]);
    world.gpus[0].cuttable = false;
    world.hold((0, "3g.40gb@0"), 0, State::Ready, 0.5);
    world.hold((0, "3g.40gb@4"), 1, State::Ready, 0.5);
    world.gpus[0].slices[0].doomed = true;
    world.cut(0, "2g.20gb@0");
    let decision = place(&world.snapshot(false));
    let [step] = &decision.now().collect::<Vec<_>>()[..] else { panic!("{decision:#?}") };
    let shares = matches!(&step.action, Action::Start { position, model: 0, .. }
        if position.to_string() == "3g.40gb@4");
    assert!(shares, "{decision:#?}");
}

#[test]
fn replicas_leave_a_gpu_that_goes_for_another_or_for_nowhere() {
    let mut world = fixed(2, vec![sized("a", 8_000)]);
    world.hold((0, "2g.20gb@0"), 0, State::Ready, 0.5);
    world.gpus[0].healthy = false;
    assert_eq!(now(&world), ["+1:0"]);
    world.gpus[1].healthy = false;
    assert_eq!(now(&world), ["-0"]);
}

#[test]
fn only_the_lent_slices_that_replicas_need_are_wanted_back() {
    let mut world = World::empty(2, vec![model("a", 100.0, 90.0)]);
    world.lend(0, "7g.80gb@0");
    world.lend(1, "4g.40gb@0");
    world.hold((1, "3g.40gb@4"), 0, State::Ready, 0.5);
    let back = |world: &World| {
        let snapshot = world.snapshot(false);
        let wanted = wanted_back(&snapshot, &place(&snapshot).refusals);
        wanted.iter().map(|(gpu, position)| format!("{gpu} {position}")).collect::<Vec<_>>()
    };
    assert_eq!(back(&world), [""; 0], "there is enough");
    world.models[0].demand_rps = 500.0;
    assert_eq!(back(&world), ["1 4g.40gb@0"], "the smaller is enough");
    world.models[0].demand_rps = 1_000.0;
    assert_eq!(back(&world), ["0 7g.80gb@0", "1 4g.40gb@0"]);
}

#[test]
fn job_slice_is_cut_beside_lent_ones_where_free() {
    let mut world = World::empty(3, vec![model("a", 100.0, 90.0)]);
    world.hold((0, "3g.40gb@4"), 0, State::Ready, 0.5);
    let found = |world: &World, profile: &str| {
        let snapshot = world.snapshot(false);
        let found = room(&snapshot, &place(&snapshot).target, profile);
        found.map(|room| (room.gpu, room.create.to_string(), room.destroy.len()))
    };
    assert_eq!(found(&world, "2g.20gb"), Some((1, "2g.20gb@4".to_owned(), 0)), "no replicas there");
    world.lend(2, "2g.20gb@4");
    assert_eq!(found(&world, "2g.20gb"), Some((2, "2g.20gb@2".to_owned(), 0)), "others are lent");
    world.cut(2, "4g.40gb@0");
    assert_eq!(found(&world, "2g.20gb"), Some((2, "2g.20gb@2".to_owned(), 1)), "an idle one goes");
    assert_eq!(found(&world, "7g.80gb"), Some((1, "7g.80gb@0".to_owned(), 0)));
    world.lend(1, "1g.10gb@0");
    assert_eq!(found(&world, "7g.80gb"), None);
}

#[test]
fn what_was_begun_is_carried_through_while_the_demand_stays() {
    for seed in 500..520 {
        let mut random = Random::new(seed);
        let mut world = World::new(&mut random, false);
        world.converge(&mut random, seed);
        for index in 0..world.models.len() {
            world.models[index].demand_rps *= between(&mut random, 0.3, 1.3);
        }
        for round in 0..80 {
            world.step(&mut random).unwrap();
            assert_eq!(world.cancelled, 0, "seed {seed}, round {round}");
        }
    }
}

#[test]
fn too_slow_model_is_placed_where_fastest_and_reported() {
    let decide = |slo_ms: f64| {
        let slow = Model { slo_ms, ..model("slow", 100.0, 50.0) };
        let world = World::empty(2, vec![slow, model("b", 100.0, 50.0)]);
        let decision = place(&world.snapshot(false));
        assert!(decision.refusals[0].why.starts_with("slow is placed "), "{decision:#?}");
        let mut placed = decision.target.placed;
        placed.sort_by_key(|one| one.model);
        placed.iter().map(|one| one.position.profile().name.clone()).collect::<Vec<_>>()
    };
    // A batch takes 6.7 ms on a whole GPU and 40 ms on a seventh.
    assert_eq!(decide(10.0), ["7g.80gb", "1g.10gb"]);
    assert_eq!(decide(5.0), ["1g.10gb", "1g.10gb"]);
}

#[test]
fn a_replica_that_was_to_go_stays_if_it_is_needed_again() {
    let mut world = World::empty(1, vec![model("a", 100.0, 90.0)]);
    world.hold((0, "1g.10gb@0"), 0, State::Ready, 0.9);
    world.hold((0, "1g.10gb@1"), 0, State::Ready, 0.1);
    let mut snapshot = world.snapshot(false);
    snapshot.last = place(&snapshot).target;
    assert_eq!(snapshot.last.leaving.len(), 1);
    snapshot.models[0].demand_rps = 180.0;
    let decision = place(&snapshot);
    assert_eq!((decision.target.placed.len(), decision.steps.len()), (2, 0), "{decision:#?}");
}

#[test]
fn more_replicas_than_are_allowed_go_whatever_is_asked_for() {
    let mut world = World::empty(1, vec![model("a", 100.0, 500.0)]);
    world.hold((0, "1g.10gb@0"), 0, State::Ready, 0.9);
    world.hold((0, "1g.10gb@1"), 0, State::Ready, 0.1);
    world.models[0].replicas_max = 1;
    world.models[0].measured[0].rows.retain(|row| row.profile == "1g.10gb");
    assert_eq!(now(&world), ["-1"]);
}

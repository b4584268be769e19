//! Pins and drains: what an operator wants somewhere is there and stays, what he wants away is gone,
//! and nobody who is served notices.

use mig::Position;
use policy::place::{Action, Pin, State, obstacle, place, wanted_back};
use simgpu::random::Random;

use crate::world::{World, model};

/// Takes a step, in which no model falls below what it has and needs unless it was said.
fn step_without_loss(world: &mut World, random: &mut Random, seed: u64) {
    let (before, demand) = (world.ready(), world.demands());
    world.step(random).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    for (index, (after, before)) in world.ready().iter().zip(&before).enumerate() {
        let kept = before.min(demand[index]) * (1.0 - 1e-9);
        assert!(
            *after >= kept || world.said_no_room,
            "seed {seed}: model {index} fell from {before} to {after} of {}",
            demand[index]
        );
    }
}

/// Where a model has its first replica.
fn first_of(world: &World, model: usize) -> (usize, Position) {
    let mut places = world.gpus.iter().enumerate().flat_map(|(gpu, on)| {
        let mine = on
            .slices
            .iter()
            .filter(move |slice| slice.replicas.iter().any(|one| one.model == Some(model)));
        mine.map(move |slice| (gpu, slice.position))
    });
    places.next().unwrap()
}

/// The replicas of a model at a place that do not leave.
fn held(world: &World, model: usize, (gpu, position): (usize, Position)) -> Vec<u64> {
    let slices = world.gpus[gpu].slices.iter().filter(|slice| slice.position == position);
    let mine = slices
        .flat_map(|slice| &slice.replicas)
        .filter(|one| one.model == Some(model) && one.state != State::Draining);
    mine.map(|one| one.id).collect()
}

#[test]
fn a_pinned_replica_never_moves() {
    for seed in 500..530 {
        let mut random = Random::new(seed);
        let mut world = World::new(&mut random, false);
        world.converge(&mut random, seed);
        let place = first_of(&world, 0);
        let (gpu, position) = place;
        world.pins.push(Pin { model: 0, gpu, position, from: None, by: "ada".to_owned() });
        let pinned = held(&world, 0, place);
        for round in 0..80 {
            if random.below(4) == 0 {
                world.change(&mut random);
                world.gpus[gpu].healthy = true;
            }
            world.step(&mut random).unwrap();
            assert_eq!(held(&world, 0, place), pinned, "seed {seed}, round {round}");
        }
    }
}

#[test]
fn a_replica_is_moved_where_it_is_wanted_and_its_model_stays_served() {
    for seed in 530..550 {
        let mut random = Random::new(seed);
        let mut world = World::new(&mut random, false);
        world.converge(&mut random, seed);
        let from = first_of(&world, 0);
        let gpu = (from.0 + 1) % world.gpus.len();
        let position = world.gpus[gpu].kind.position("3g.40gb@4").unwrap();
        let by = "ada".to_owned();
        world.pins.push(Pin { model: 0, gpu, position, from: Some(from), by });
        for _ in 0..80 {
            step_without_loss(&mut world, &mut random, seed);
        }
        assert_eq!(held(&world, 0, (gpu, position)).len(), 1, "seed {seed}");
        assert_eq!(held(&world, 0, from), [0_u64; 0], "seed {seed}");
        // Nothing is left to do, and the place it left may be used again.
        world.pins[0].from = None;
        world.converge(&mut random, seed);
        assert_eq!(held(&world, 0, (gpu, position)).len(), 1, "seed {seed}");
    }
}

#[test]
fn a_drained_worker_ends_with_nothing_on_it_while_others_have_room() {
    for seed in 550..570 {
        let mut random = Random::new(seed);
        let mut world = World::new(&mut random, false);
        world.converge(&mut random, seed);
        // A worker of two GPUs, one of them pinned to.
        let drained: Vec<usize> = world.used().take(2).collect();
        let (gpu, position) = first_of(&world, 0);
        world.pins.push(Pin { model: 0, gpu, position, from: None, by: "ada".to_owned() });
        for gpu in &drained {
            world.gpus[*gpu].healthy = false;
        }
        for _ in 0..80 {
            step_without_loss(&mut world, &mut random, seed);
        }
        world.converge(&mut random, seed);
        for gpu in &drained {
            let mut slices = world.gpus[*gpu].slices.iter();
            assert!(slices.all(|slice| slice.replicas.is_empty()), "seed {seed}, gpu {gpu}");
        }
        for (ready, demand) in world.ready().iter().zip(world.demands()) {
            assert!(*ready >= demand * (1.0 - 1e-9), "seed {seed}: {ready} of {demand}");
        }
        for gpu in &drained {
            world.gpus[*gpu].healthy = true;
        }
        world.converge(&mut random, seed);
        assert_eq!(held(&world, 0, (gpu, position)).len(), 1, "seed {seed}: the pin holds again");
    }
}

#[test]
fn a_pin_where_the_replica_is_moves_nothing_and_says_who_wants_it() {
    let mut world = World::empty(2, vec![model("a", 100.0, 90.0)]);
    world.hold((0, "1g.10gb@0"), 0, State::Ready, 0.9);
    world.pin(0, (0, "1g.10gb@0"));
    let decision = place(&world.snapshot(true));
    assert_eq!(decision.steps, []);
    assert_eq!(decision.target.placed[0].why, "pinned by operator ada");
    world.step(&mut Random::new(0)).unwrap();
    world.pins.clear();
    let decision = place(&world.snapshot(true));
    assert_eq!(decision.steps, []);
    assert_eq!(decision.target.placed[0].why, "it is there");
}

#[test]
fn what_is_in_the_way_of_a_pin_goes_once_its_successor_is_ready() {
    let mut world = World::empty(2, vec![model("a", 100.0, 90.0), model("b", 100.0, 150.0)]);
    world.hold((1, "1g.10gb@0"), 0, State::Ready, 0.9);
    world.hold((0, "2g.20gb@2"), 1, State::Ready, 0.9);
    world.pin(0, (0, "4g.40gb@0"));
    let decision = place(&world.snapshot(false));
    let stage = |wanted: fn(&Action) -> bool| {
        decision.steps.iter().find(|step| wanted(&step.action)).unwrap().stage
    };
    let b_starts = stage(|action| matches!(action, Action::Start { model: 1, .. }));
    let b_stops = stage(|action| *action == Action::Stop { replica: 1 });
    let a_starts = stage(|action| matches!(action, Action::Start { model: 0, gpu: 0, .. }));
    let a_stops = stage(|action| *action == Action::Stop { replica: 0 });
    assert!(b_starts < b_stops && b_stops < a_starts && a_starts < a_stops, "{decision:#?}");
    let why = |model: usize| {
        let steps = decision.steps.iter();
        let mut starts = steps
            .filter(|step| matches!(step.action, Action::Start { model: of, .. } if of == model));
        starts.next().unwrap().why.clone()
    };
    assert_eq!(why(0), "pinned by operator ada");
}

#[test]
fn models_share_a_pinned_slice_if_it_has_memory_for_both() {
    let mut world = World::empty(2, vec![model("a", 100.0, 90.0), model("b", 100.0, 90.0)]);
    world.hold((0, "3g.40gb@0"), 1, State::Ready, 0.9);
    world.hold((1, "1g.10gb@0"), 0, State::Ready, 0.9);
    world.pin(0, (0, "3g.40gb@0"));
    let starts = |world: &World| place(&world.snapshot(false)).target.leaving.len();
    assert_eq!(starts(&world), 1, "only the replica that is one too many leaves");
    world.models[1].memory_mib = Some(39_000);
    assert_eq!(starts(&world), 2, "and the other model if it leaves too little memory");
}

#[test]
fn a_pin_that_cannot_hold_is_told_and_its_model_is_placed_all_the_same() {
    let told = |change: fn(&mut World)| {
        let mut world = World::empty(2, vec![model("a", 100.0, 90.0), model("b", 100.0, 90.0)]);
        world.pin(0, (0, "1g.10gb@0"));
        change(&mut world);
        let snapshot = world.snapshot(false);
        let decision = place(&snapshot);
        let place = &decision.target.placed;
        let pin = world.pins.iter().find(|pin| pin.model == 0).unwrap();
        assert!(place.iter().any(|one| one.model == 0), "{decision:#?}");
        assert!(!place.iter().any(|one| one.pinned && one.model == 0), "{decision:#?}");
        let why = obstacle(&snapshot, pin).unwrap();
        let whole = "a is not on 1g.10gb@0, where operator ada pinned it: ".to_owned() + &why;
        assert!(decision.refusals.iter().any(|told| told.why == whole), "{decision:#?}");
        why
    };
    let gone = told(|world| world.gpus[0].healthy = false);
    assert_eq!(gone, "its GPU fails, leaves or is drained");
    let lent = told(|world| world.lend(0, "2g.20gb@0"));
    assert_eq!(lent, "it is lent to a job");
    let large = told(|world| world.models[0].memory_mib = Some(12_000));
    assert_eq!(large, "a replica needs 12000 MiB, the slice has 9851");
    let uncut = told(|world| world.gpus[0].cuttable = false);
    assert_eq!(uncut, "the GPU has no such slice and cannot be cut");
    let across = told(|world| {
        world.pin(1, (0, "3g.40gb@0"));
        world.pins.rotate_right(1);
    });
    assert_eq!(across, "b is pinned across it, on 3g.40gb@0, by operator ada");
}

#[test]
fn a_lent_slice_that_is_pinned_to_is_wanted_back() {
    let mut world = World::empty(1, vec![model("a", 100.0, 90.0)]);
    world.hold((0, "1g.10gb@0"), 0, State::Ready, 0.9);
    world.lend(0, "3g.40gb@4");
    let back = |world: &World| {
        let snapshot = world.snapshot(false);
        wanted_back(&snapshot, &place(&snapshot).refusals)
    };
    assert_eq!(back(&world), []);
    world.pin(0, (0, "3g.40gb@4"));
    let position = world.pins[0].position;
    assert_eq!(back(&world), [(0, position)]);
}

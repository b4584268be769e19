use simgpu::random::Random;

use super::*;

const WHOLE: &str = "7g.80gb@0";
const LEFT: &str = "4g.40gb@0";
const RIGHT: &str = "3g.40gb@4";

fn place(position: &str, lane: u32) -> Place {
    (position.to_owned(), lane)
}

fn cut(positions: &[&str]) -> BTreeSet<String> {
    positions.iter().map(|position| (*position).to_owned()).collect()
}

fn wish(positions: &[&str], replicas: &[(u32, &str, u32)]) -> Wish {
    let wanted = |(id, position, lane): &(u32, &str, u32)| {
        (*id, Wanted { place: place(position, *lane), digest: u64::from(*id), memory_mib: 1_000 })
    };
    Wish {
        cut: Some(cut(positions)),
        replicas: replicas.iter().map(wanted).collect(),
        ..Wish::default()
    }
}

fn loaded(id: u32, phase: Phase) -> Loaded {
    Loaded { digest: u64::from(id), memory_mib: 1_000, phase }
}

/// A GPU cut into `positions`, each of which has 2.5 replicas' memory.
fn world(positions: &[&str]) -> GpuWorld {
    GpuWorld {
        can_reshape: true,
        slices: positions.iter().map(|one| ((*one).to_owned(), Some(2_500))).collect(),
        ..GpuWorld::default()
    }
}

fn with(mut world: GpuWorld, position: &str, replicas: &[(u32, Phase)]) -> GpuWorld {
    let replicas = replicas.iter().map(|(id, phase)| (*id, loaded(*id, *phase))).collect();
    let lane = LaneSeen { phase: LanePhase::Up, replicas };
    world.lanes.insert(place(position, 0), lane);
    world
}

#[test]
fn a_gpu_that_is_as_wished_is_left_alone() {
    let wish = wish(&[LEFT, RIGHT], &[(1, LEFT, 0), (2, RIGHT, 0)]);
    let world = with(world(&[LEFT, RIGHT]), LEFT, &[(1, Phase::Alive)]);
    let world = with(world, RIGHT, &[(2, Phase::Alive)]);
    assert_eq!(next(&wish, &world), Next::default());
}

#[test]
fn a_slice_that_vanishes_is_drained_then_stopped_then_cut_away() {
    let wish = wish(&[LEFT, RIGHT], &[(2, LEFT, 0)]);
    let full = with(world(&[WHOLE]), WHOLE, &[(1, Phase::Alive)]);
    let unload = Step::Unload { place: place(WHOLE, 0), replica: 1 };
    assert_eq!(next(&wish, &full).steps, [unload]);
    let draining = with(world(&[WHOLE]), WHOLE, &[(1, Phase::Draining)]);
    assert_eq!(next(&wish, &draining).steps, []);
    let empty = with(world(&[WHOLE]), WHOLE, &[]);
    assert_eq!(next(&wish, &empty).steps, [Step::Stop { place: place(WHOLE, 0) }]);
    assert_eq!(next(&wish, &world(&[WHOLE])).steps, [Step::Reshape]);
    assert_eq!(next(&wish, &world(&[LEFT, RIGHT])).steps, [Step::Start { place: place(LEFT, 0) }]);
}

#[test]
fn a_slice_that_stays_goes_on_while_its_neighbour_is_cut() {
    let wish = wish(&[RIGHT, "2g.20gb@0"], &[(2, RIGHT, 0), (3, "2g.20gb@0", 0)]);
    let world = with(world(&[LEFT, RIGHT]), LEFT, &[(1, Phase::Alive)]);
    let world = with(world, RIGHT, &[(2, Phase::Alive)]);
    let unload = Step::Unload { place: place(LEFT, 0), replica: 1 };
    assert_eq!(next(&wish, &world).steps, [unload]);
}

#[test]
fn desired_replica_on_a_removed_slice_delays_the_reshape() {
    let wish = wish(&[LEFT, RIGHT], &[(1, WHOLE, 0), (2, LEFT, 0)]);
    let world = with(world(&[WHOLE]), WHOLE, &[(1, Phase::Alive)]);
    assert_eq!(next(&wish, &world), Next::default());
}

#[test]
fn each_process_of_a_replica_is_a_lane_of_its_own() {
    let wish = wish(&[WHOLE], &[(1, WHOLE, 0), (2, WHOLE, 1)]);
    let steps = next(&wish, &world(&[WHOLE])).steps;
    let start = |lane| Step::Start { place: place(WHOLE, lane) };
    assert_eq!(steps, [start(0), start(1)]);
}

#[test]
fn replica_that_does_not_fit_loads_once_there_is_memory() {
    let wish = wish(&[WHOLE], &[(1, WHOLE, 0), (2, WHOLE, 0), (3, WHOLE, 0)]);
    let alive = Phase::Alive;
    let full = with(world(&[WHOLE]), WHOLE, &[(1, alive), (2, alive)]);
    let told = next(&wish, &full);
    assert_eq!(told.steps, []);
    assert_eq!(told.refused[&3], "out of memory: needs 1000 MiB, 500 of 2500 are free");
    let room = with(world(&[WHOLE]), WHOLE, &[(1, alive), (2, Phase::Failed { due: false })]);
    let told = next(&wish, &room);
    assert_eq!(told.steps, [Step::Load { place: place(WHOLE, 0), replica: 3 }]);
    assert_eq!(told.refused, BTreeMap::new());
}

#[test]
fn failed_replica_loads_again_only_when_it_is_due() {
    let wish = wish(&[WHOLE], &[(1, WHOLE, 0)]);
    let failed = |due| with(world(&[WHOLE]), WHOLE, &[(1, Phase::Failed { due })]);
    assert_eq!(next(&wish, &failed(false)).steps, []);
    let load = Step::Load { place: place(WHOLE, 0), replica: 1 };
    assert_eq!(next(&wish, &failed(true)).steps, [load]);
}

#[test]
fn another_digest_is_another_replica() {
    let mut wish = wish(&[WHOLE], &[(1, WHOLE, 0)]);
    wish.replicas.get_mut(&1).unwrap().digest = 99;
    let world = with(world(&[WHOLE]), WHOLE, &[(1, Phase::Alive)]);
    let unload = Step::Unload { place: place(WHOLE, 0), replica: 1 };
    assert_eq!(next(&wish, &world).steps, [unload]);
}

#[test]
fn gpu_that_cannot_reshape_serves_from_the_slices_it_has() {
    let wish = wish(&[LEFT], &[(1, LEFT, 0), (2, "whole", 0), (3, RIGHT, 0)]);
    let whole = GpuWorld { can_reshape: false, ..world(&["whole"]) };
    let told = next(&wish, &whole);
    assert_eq!(told.steps, [Step::Start { place: place("whole", 0) }]);
    assert_eq!(told.refused.keys().collect::<Vec<_>>(), [&1, &3]);
    assert_eq!(told.refused[&3], "there is no slice 3g.40gb@4");
}

#[test]
fn a_process_whose_slice_is_gone_is_stopped_at_once() {
    let wish = wish(&[LEFT], &[(1, LEFT, 0)]);
    let world = with(world(&[]), LEFT, &[(1, Phase::Alive)]);
    assert!(next(&wish, &world).steps.contains(&Step::Stop { place: place(LEFT, 0) }));
}

#[test]
fn slice_holds_replicas_or_a_rank_but_never_both() {
    let lent = Wish { ranks: [(LEFT.to_owned(), "7.1.0".to_owned())].into(), ..wish(&[LEFT], &[]) };
    let served = with(world(&[LEFT]), LEFT, &[(1, Phase::Draining)]);
    assert_eq!(next(&lent, &served).steps, []);
    let start = Step::StartRank { position: LEFT.to_owned() };
    assert_eq!(next(&lent, &world(&[LEFT])).steps, [start]);

    let back = wish(&[LEFT], &[(1, LEFT, 0)]);
    let mut seen = world(&[LEFT]);
    seen.ranks.insert(LEFT.to_owned(), RankSeen { name: "7.1.0".to_owned(), over: false });
    let position = LEFT.to_owned();
    assert_eq!(next(&back, &seen).steps, [Step::StopRank { position: position.clone() }]);
    seen.ranks.get_mut(LEFT).unwrap().over = true;
    assert_eq!(next(&back, &seen).steps, [Step::ForgetRank { position }]);
    seen.ranks.clear();
    assert_eq!(next(&back, &seen).steps, [Step::Start { place: place(LEFT, 0) }]);
}

const CUTS: [&[&str]; 5] =
    [&[WHOLE], &[LEFT, RIGHT], &["3g.40gb@0", RIGHT], &["2g.20gb@0", "2g.20gb@2", RIGHT], &[]];

fn any_wish(random: &mut Random, ids: &mut u32) -> Wish {
    let positions = CUTS[random.below(CUTS.len() as u64) as usize];
    let mut replicas = Vec::new();
    let mut ranks = BTreeMap::new();
    for position in positions {
        if random.below(3) == 0 {
            *ids += 1;
            ranks.insert((*position).to_owned(), format!("{ids}.1.0"));
            continue;
        }
        // At most two of them: no slice has memory for three.
        for _ in 0..random.below(3) {
            *ids += 1;
            replicas.push((*ids, *position, random.below(2) as u32));
        }
    }
    Wish { ranks, ..wish(positions, &replicas) }
}

/// Does what was asked as a real GPU and real processes would, some of it a little later.
fn act(world: &mut GpuWorld, wish: &Wish, step: &Step, random: &mut Random) {
    match step {
        Step::Unload { place, replica } => {
            let lane = world.lanes.get_mut(place).unwrap();
            lane.replicas.get_mut(replica).unwrap().phase = Phase::Draining;
        }
        Step::Stop { place } => world.lanes.get_mut(place).unwrap().phase = LanePhase::Stopping,
        Step::Reshape => {
            let cut = wish.cut.clone().unwrap();
            let used = world.lanes.keys().find(|(position, _)| !cut.contains(position));
            assert_eq!(used, None, "a slice with a process would be destroyed");
            let lent = world.ranks.keys().find(|position| !cut.contains(*position));
            assert_eq!(lent, None, "a slice with a rank would be destroyed");
            world.slices = cut.into_iter().map(|position| (position, Some(2_500))).collect();
        }
        Step::Start { place } => {
            let lane = LaneSeen { phase: LanePhase::Starting, replicas: BTreeMap::new() };
            assert_eq!(world.lanes.insert(place.clone(), lane), None, "started twice");
        }
        Step::Load { place, replica } => {
            let fails = random.below(4) == 0;
            let phase = if fails { Phase::Failed { due: false } } else { Phase::Alive };
            let lane = world.lanes.get_mut(place).unwrap();
            assert_eq!(lane.phase, LanePhase::Up, "loaded into a process that is not up");
            lane.replicas.insert(*replica, loaded(*replica, phase));
        }
        Step::StartRank { position } => {
            assert!(world.lanes.keys().all(|(other, _)| other != position), "not alone");
            let seen = RankSeen { name: wish.ranks[position].clone(), over: false };
            assert_eq!(world.ranks.insert(position.clone(), seen), None, "two on one slice");
        }
        Step::StopRank { position } => world.ranks.get_mut(position).unwrap().over = true,
        Step::ForgetRank { position } => {
            assert!(world.ranks.remove(position).is_some_and(|seen| seen.over), "it still runs");
        }
    }
}

/// Lets time pass: drains end, processes come up or die, failures become due.
fn pass(world: &mut GpuWorld, random: &mut Random) {
    world.lanes.retain(|_, lane| lane.phase != LanePhase::Stopping);
    for lane in world.lanes.values_mut() {
        lane.phase = LanePhase::Up;
        lane.replicas.retain(|_, one| one.phase != Phase::Draining || random.below(2) == 0);
        for one in lane.replicas.values_mut() {
            if let Phase::Failed { due } = &mut one.phase {
                *due = true;
            }
        }
        if random.below(10) == 0 {
            *lane = LaneSeen { phase: LanePhase::Starting, replicas: BTreeMap::new() };
        }
    }
}

#[test]
fn every_wish_comes_true_and_what_it_keeps_is_never_touched() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let (mut world, mut ids) = (world(CUTS[random.below(5) as usize]), 0);
        for _ in 0..3 {
            let wish = any_wish(&mut random, &mut ids);
            let mut rounds = 0;
            loop {
                let told = next(&wish, &world);
                assert_eq!(told.refused, BTreeMap::new(), "seed {seed}");
                if told.steps.is_empty() && rounds > 0 && is_true(&wish, &world) {
                    break;
                }
                for step in &told.steps {
                    assert!(harmless(step, &wish, &world), "seed {seed}: {step:?}");
                    act(&mut world, &wish, step, &mut random);
                }
                pass(&mut world, &mut random);
                rounds += 1;
                assert!(rounds < 400, "seed {seed}: {wish:?} never came true: {world:?}");
            }
        }
    }
}

/// Whether a step leaves alone the replicas that are as they shall be.
fn harmless(step: &Step, wish: &Wish, world: &GpuWorld) -> bool {
    let kept = |place: &Place, id: u32| {
        let wanted = wish.replicas.get(&id).filter(|wanted| wanted.place == *place);
        wanted.is_some() && wish.cut.as_ref().is_some_and(|cut| cut.contains(&place.0))
    };
    match step {
        Step::Unload { place, replica } => !kept(place, *replica),
        Step::Stop { place } => !world.lanes[place].replicas.keys().any(|id| kept(place, *id)),
        Step::StopRank { position } | Step::ForgetRank { position } => {
            wish.ranks.get(position) != Some(&world.ranks[position].name)
        }
        Step::Reshape | Step::Start { .. } | Step::Load { .. } | Step::StartRank { .. } => true,
    }
}

fn is_true(wish: &Wish, world: &GpuWorld) -> bool {
    let mut found: Vec<(u32, &Place)> = Vec::new();
    for (place, lane) in &world.lanes {
        found.extend(
            lane.replicas
                .iter()
                .filter(|(_, one)| one.phase == Phase::Alive)
                .map(|(id, _)| (*id, place)),
        );
    }
    found.sort_unstable();
    let wanted: Vec<_> = wish.replicas.iter().map(|(id, one)| (*id, &one.place)).collect();
    let ranks = world.ranks.iter().map(|(position, seen)| (position, &seen.name));
    found == wanted
        && ranks.eq(wish.ranks.iter())
        && world.slices.keys().eq(wish.cut.as_ref().unwrap())
}

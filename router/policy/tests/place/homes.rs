//! Models that run on cores, and models that run on GPUs, in fleets that have one, the other or both.

use policy::{
    fleet::Home,
    place::{Gpu, Placed, State, place},
    plan::{Measured, Row},
};

use crate::world::{World, model};

/// One GPU, then four cores.
const GPU: usize = 0;
const CORES: usize = 1;

fn cores(count: u8) -> Gpu {
    Gpu { kind: mig::cores(count, 8_000), healthy: true, cuttable: true, slices: Vec::new() }
}

/// A model for `home` that serves `rps` on a seventh of a GPU, on a GPU and four cores.
fn world(home: Home) -> World {
    let mut world = World::empty(1, vec![model("m", 100.0, 50.0)]);
    world.models[0].home = home;
    world.gpus.push(cores(4));
    world
}

fn placed(world: &World) -> Vec<Placed> {
    place(&world.snapshot(false)).target.placed
}

fn on(world: &World) -> Vec<(usize, String)> {
    placed(world).iter().map(|one| (one.gpu, one.position.to_string())).collect()
}

fn measured_on_cores(rows: &[(&str, f64)]) -> Measured {
    let row = |(profile, throughput_rps): &(&str, f64)| Row {
        profile: (*profile).to_owned(),
        batch: 1,
        processes: 1,
        throughput_rps: *throughput_rps,
    };
    let kind = Some(mig::cores(4, 8_000).name.clone());
    Measured { kind, rows: rows.iter().map(row).collect() }
}

#[test]
fn each_model_goes_home_where_there_is_one() {
    // What was measured on GPUs says nothing of cores: any slice of them will do.
    assert_eq!(on(&world(Home::Cores))[0].0, CORES);
    assert_eq!(on(&world(Home::Gpus))[0].0, GPU);
}

#[test]
fn without_its_home_a_model_goes_anywhere() {
    let mut only_cores = world(Home::Gpus);
    only_cores.gpus.remove(GPU);
    only_cores.models[0].measured.clear();
    assert_eq!(on(&only_cores).len(), 1);
    let mut only_gpu = world(Home::Cores);
    only_gpu.gpus.remove(CORES);
    assert_eq!(on(&only_gpu)[0].0, GPU);
    let mut drained = world(Home::Cores);
    drained.gpus[CORES].healthy = false;
    assert_eq!(on(&drained)[0].0, GPU, "cores that are drained are no home");
}

#[test]
fn a_replica_on_a_gpu_moves_to_cores_that_come() {
    let mut world = world(Home::Cores);
    world.hold((GPU, "1g.10gb@0"), 0, State::Ready, 0.5);
    assert_eq!(on(&world)[0].0, CORES);
    assert_eq!(placed(&world).len(), 1, "it is on the GPU as well");
}

#[test]
fn what_one_core_showed_holds_for_devices_of_other_sizes() {
    let mut world = world(Home::Cores);
    world.gpus.insert(CORES, cores(2));
    world.models[0].measured = vec![measured_on_cores(&[("cpu:1", 20.0)])];
    world.models[0].slo_ms = 2_000.0;
    world.models[0].demand_rps = 110.0;
    let mut on: Vec<usize> = on(&world).iter().map(|(gpu, _)| *gpu).collect();
    on.sort_unstable();
    assert_eq!(on, [1, 1, 2, 2, 2, 2], "six cores of 20 rows/s for 110");
}

#[test]
fn more_cores_are_tried_only_where_fewer_are_too_slow() {
    let mut world = world(Home::Cores);
    world.models[0].demand_rps = 1.0;
    world.models[0].measured = vec![measured_on_cores(&[("cpu:1", 10.0)])];
    world.models[0].slo_ms = 400.0;
    assert_eq!(on(&world)[0].1, "cpu:1@0", "100 ms is in time");
    // 45 % of 130 ms are 58 ms: two cores may do it, and are expected to take 50 ms.
    world.models[0].slo_ms = 130.0;
    assert!(on(&world)[0].1.starts_with("cpu:2@"), "{:?}", on(&world));
    world.models[0].measured = vec![measured_on_cores(&[("cpu:1", 10.0), ("cpu:2", 11.0)])];
    assert!(on(&world)[0].1.starts_with("cpu:4@"), "two were no faster, four are left to try");
}

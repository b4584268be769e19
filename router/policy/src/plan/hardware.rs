//! The fleet as the planner sees it: types of slot, and the shapes a GPU of each kind can take.

use mig::{Geometry, Kind, Position, Profile};

use super::Gpus;

/// A profile of one kind of GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) pool: usize,
    pub(super) kind: &'static Kind,
    pub(super) profile: &'static Profile,
}

/// A multiset of slots that one GPU can have, and to which nothing can be added.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) pool: usize,
    /// How many of each slot.
    pub(super) counts: Vec<u32>,
    /// One way to lay it out.
    pub(super) layout: Vec<Position>,
}

/// All GPUs of one kind.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) kind: &'static Kind,
    /// Their numbers in the fleet.
    pub(super) gpus: Vec<usize>,
}

/// The whole fleet.
#[derive(Clone, Debug)]
pub(super) struct Hardware {
    pub(super) pools: Vec<Pool>,
    pub(super) slots: Vec<Slot>,
    pub(super) shapes: Vec<Shape>,
}

impl Hardware {
    /// GPUs are numbered in the order given. Slices with media engines are not used: they are
    /// scarce and no faster.
    pub(super) fn new(fleet: &[Gpus]) -> Self {
        let mut pools: Vec<Pool> = Vec::new();
        let mut next = 0;
        for Gpus { kind, count } in fleet {
            let gpus = next..next + *count as usize;
            next = gpus.end;
            match pools.iter_mut().find(|pool| pool.kind.name == kind.name) {
                Some(pool) => pool.gpus.extend(gpus),
                None => pools.push(Pool { kind, gpus: gpus.collect() }),
            }
        }
        let mut hardware = Self { pools, slots: Vec::new(), shapes: Vec::new() };
        for pool in 0..hardware.pools.len() {
            let kind = hardware.pools[pool].kind;
            let profiles = kind.profiles.iter().filter(|profile| !profile.media);
            hardware.slots.extend(profiles.map(|profile| Slot { pool, kind, profile }));
        }
        for pool in 0..hardware.pools.len() {
            let shapes = shapes(pool, &hardware.slots, hardware.pools[pool].kind);
            hardware.shapes.extend(shapes);
        }
        hardware
    }

    /// How many GPUs there are of each pool.
    pub(super) fn limits(&self) -> Vec<u32> {
        let count = |pool: &Pool| u32::try_from(pool.gpus.len()).unwrap_or(u32::MAX);
        self.pools.iter().map(count).collect()
    }

    /// How many slots of each type `counts` of the shapes have.
    pub(super) fn supply(&self, counts: &[u32]) -> Vec<u32> {
        let mut supply = vec![0; self.slots.len()];
        for (shape, count) in self.shapes.iter().zip(counts).filter(|(_, count)| **count > 0) {
            for (slots, each) in supply.iter_mut().zip(&shape.counts) {
                *slots += each * count;
            }
        }
        supply
    }
}

fn shapes(pool: usize, slots: &[Slot], kind: &'static Kind) -> Vec<Shape> {
    let mut found: Vec<Shape> = Vec::new();
    for geometry in Geometry::maximal(kind, |profile| !profile.media) {
        let count = |slot: &Slot| {
            let same =
                |one: &&Position| slot.pool == pool && one.profile().name == slot.profile.name;
            u32::try_from(geometry.positions().iter().filter(same).count()).unwrap_or(0)
        };
        let counts: Vec<u32> = slots.iter().map(count).collect();
        if found.iter().all(|shape| shape.counts != counts) {
            found.push(Shape { pool, counts, layout: geometry.positions().to_vec() });
        }
    }
    let within = |small: &Shape, large: &Shape| {
        small.counts != large.counts && small.counts.iter().zip(&large.counts).all(|(a, b)| a <= b)
    };
    let kept = |shape: &&Shape| !found.iter().any(|other| within(shape, other));
    found.iter().filter(kept).cloned().collect()
}

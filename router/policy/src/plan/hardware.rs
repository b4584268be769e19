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
    pub(super) counts: Vec<u32>,
    /// Every way to lay it out. At least one.
    pub(super) layouts: Vec<Layout>,
}

impl Shape {
    /// The first way to lay it out.
    pub(super) fn layout(&self) -> &[(Position, usize)] {
        self.layouts.first().map_or(&[], |layout| &layout.places)
    }
}

/// Where the slots of a shape are.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Each position and its type of slot, by start.
    pub(super) places: Vec<(Position, usize)>,
    /// A bit for each position, by which layouts of one pool are compared.
    pub(super) mask: u64,
}

/// All GPUs of one kind.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) kind: &'static Kind,
    /// Their numbers in the fleet.
    pub(super) gpus: Vec<usize>,
    /// Every position a slice may have, by which masks are made.
    positions: Vec<Position>,
}

impl Pool {
    /// The bit of a position in masks; 0 for one of another kind.
    pub(super) fn bit(&self, position: Position) -> u64 {
        let index = self.positions.iter().position(|one| *one == position);
        index.map_or(0, |index| 1 << index)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Hardware {
    pub(super) pools: Vec<Pool>,
    /// GPUs of each pool that are not used.
    spare: u32,
    pub(super) slots: Vec<Slot>,
    pub(super) shapes: Vec<Shape>,
}

impl Hardware {
    /// GPUs are numbered in the order given. Slices with media engines are not used: they are
    /// scarce and no faster.
    pub(super) fn new(fleet: &[Gpus], spare: u32) -> Self {
        let mut pools: Vec<Pool> = Vec::new();
        let mut next = 0;
        for Gpus { kind, count } in fleet {
            let gpus = next..next + *count as usize;
            next = gpus.end;
            match pools.iter_mut().find(|pool| pool.kind.name == kind.name) {
                Some(pool) => pool.gpus.extend(gpus),
                None => {
                    let positions = kind.positions();
                    pools.push(Pool { kind, gpus: gpus.collect(), positions });
                }
            }
        }
        let mut hardware = Self { pools, spare, slots: Vec::new(), shapes: Vec::new() };
        for pool in 0..hardware.pools.len() {
            let kind = hardware.pools[pool].kind;
            let profiles = kind.profiles.iter().filter(|profile| !profile.media);
            hardware.slots.extend(profiles.map(|profile| Slot { pool, kind, profile }));
        }
        for pool in 0..hardware.pools.len() {
            let shapes = hardware.shapes(pool);
            hardware.shapes.extend(shapes);
        }
        hardware
    }

    pub(super) fn limits(&self) -> Vec<u32> {
        let count = |pool: &Pool| {
            u32::try_from(pool.gpus.len()).unwrap_or(u32::MAX).saturating_sub(self.spare)
        };
        self.pools.iter().map(count).collect()
    }

    /// How many GPUs of `pool` have some shape.
    pub(super) fn used(&self, counts: &[u32], pool: usize) -> u32 {
        let shapes = self.shapes.iter().zip(counts);
        shapes.filter(|(shape, _)| shape.pool == pool).map(|(_, count)| count).sum()
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

    /// The type of a slot on a pool.
    pub(super) fn slot(&self, pool: usize, profile: &Profile) -> Option<usize> {
        self.slots.iter().position(|slot| slot.pool == pool && slot.profile.name == profile.name)
    }

    fn shapes(&self, pool: usize) -> Vec<Shape> {
        let mut found: Vec<Shape> = Vec::new();
        for geometry in Geometry::maximal(self.pools[pool].kind, |profile| !profile.media) {
            let mut counts = vec![0; self.slots.len()];
            let mut layout = Layout { places: Vec::new(), mask: 0 };
            for position in geometry.positions() {
                if let Some(slot) = self.slot(pool, position.profile()) {
                    counts[slot] += 1;
                    layout.places.push((*position, slot));
                    layout.mask |= self.pools[pool].bit(*position);
                }
            }
            match found.iter_mut().find(|shape| shape.counts == counts) {
                Some(shape) => shape.layouts.push(layout),
                None => found.push(Shape { pool, counts, layouts: vec![layout] }),
            }
        }
        let within = |small: &Shape, large: &Shape| {
            small.counts != large.counts
                && small.counts.iter().zip(&large.counts).all(|(a, b)| a <= b)
        };
        let kept = |shape: &&Shape| !found.iter().any(|other| within(shape, other));
        found.iter().filter(kept).cloned().collect()
    }
}

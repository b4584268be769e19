//! GPUs on which slices are put one after the other.

use mig::{Geometry, Position, Profile};

use super::super::{
    Plan, PlanError, Problem, Slice,
    bind::alone,
    fill::Terms,
    outcome::Bounds,
    problem::Ground,
    relax::{Buying, Demand},
};

pub(super) struct Bins<'a> {
    pub(super) problem: &'a Problem,
    pub(super) ground: &'a Ground,
    pub(super) gpus: Vec<Gpu>,
}

/// One GPU and the models on its slices.
#[derive(Clone)]
pub(super) struct Gpu {
    number: usize,
    pub(super) pool: usize,
    pub(super) geometry: Geometry,
    /// Position, model and type of slot.
    pub(super) held: Vec<(Position, usize, usize)>,
}

impl<'a> Bins<'a> {
    pub(super) fn new(problem: &'a Problem, ground: &'a Ground) -> Self {
        let mut gpus = Vec::new();
        let limits = ground.hardware.limits();
        for (pool, of_kind) in ground.hardware.pools.iter().enumerate() {
            for number in of_kind.gpus.iter().take(limits[pool] as usize) {
                let geometry = Geometry::empty(of_kind.kind);
                gpus.push(Gpu { number: *number, pool, geometry, held: Vec::new() });
            }
        }
        gpus.sort_by_key(|gpu| gpu.number);
        Self { problem, ground, gpus }
    }

    /// The slots of a GPU's kind that can serve `model`.
    pub(super) fn slots(&self, gpu: usize, model: usize) -> impl Iterator<Item = usize> {
        let pool = self.gpus[gpu].pool;
        let slots = &self.ground.hardware.slots;
        (0..slots.len())
            .filter(move |slot| slots[*slot].pool == pool && self.rps(model, *slot) > 0.0)
    }

    /// What `model` serves on a slot of its own.
    pub(super) fn rps(&self, model: usize, slot: usize) -> f64 {
        self.ground.table.capacity(model, slot)
    }

    pub(super) fn profile(&self, slot: usize) -> &'static Profile {
        self.ground.hardware.slots[slot].profile
    }

    /// Puts `model` on a slice of type `slot` of `gpu`, at the first of `starts` that is free.
    pub(super) fn put(&mut self, gpu: usize, slot: usize, model: usize, starts: &[u8]) -> bool {
        let profile = self.profile(slot);
        let gpu = &mut self.gpus[gpu];
        for start in starts {
            let Ok(position) = Position::new(profile, *start) else { continue };
            if let Ok(geometry) = gpu.geometry.with(position) {
                gpu.geometry = geometry;
                gpu.held.push((position, model, slot));
                return true;
            }
        }
        false
    }

    pub(super) fn compute(&self, gpu: usize) -> u32 {
        let held = self.gpus[gpu].held.iter();
        held.map(|(position, ..)| u32::from(position.profile().compute_slices)).sum()
    }

    pub(super) fn too_small(&self) -> PlanError {
        self.ground.too_small()
    }

    pub(super) fn into_plan(self) -> Plan {
        let demand = Demand {
            models: &self.problem.models,
            table: &self.ground.table,
            slots: self.ground.hardware.slots.len(),
            only: &[],
            buying: Buying::Whole,
            wants: &[],
        };
        let terms = Terms {
            demand,
            hardware: &self.ground.hardware,
            prices: &[],
            latency_share: self.problem.rules.latency_share,
        };
        let mut slices = Vec::new();
        for gpu in &self.gpus {
            for (position, model, slot) in &gpu.held {
                let replicas = alone(&terms, *model, *slot);
                let kind = &gpu.geometry.kind().name;
                slices.push(Slice { gpu: gpu.number, kind, position: *position, replicas });
            }
        }
        Plan::new(slices, Bounds::default())
    }
}

//! What stands where, and what is on its way.

use std::collections::BTreeMap;

use mig::Position;
use policy::{
    moment::Moment,
    place::{Action, Gpu, Replica, Slice, State, Target},
};

use super::lookups::ReplicaKind;
use crate::{fleet::SimFleet, study::Study};

/// A replica on its way or there.
#[derive(Clone, Copy, Debug)]
struct Life {
    ready_at: Moment,
    processes: u32,
    capacity_rps: f64,
}

/// Replicas of one model that serve, alike.
#[derive(Clone, Debug)]
pub(super) struct Serving {
    /// Which.
    pub(super) place: ReplicaKind,
    /// What a plan says it can serve.
    pub(super) capacity_rps: f64,
    /// Processes of it.
    pub(super) processes: u32,
    /// Its part of its GPU's compute.
    pub(super) part: f64,
}

/// See the [module](self).
pub(super) struct LiveFleet {
    gpus: Vec<Gpu>,
    lives: BTreeMap<u64, Life>,
    /// By GPU, when its last cut is done.
    cut_until: Vec<Moment>,
    target: Target,
    next: u64,
    settled: bool,
}

impl LiveFleet {
    /// GPUs that are not cut yet.
    pub(super) fn new(study: &Study) -> Self {
        let whole = |gpus: &crate::study::Gpus| {
            let gpu = Gpu { kind: gpus.kind, healthy: true, cuttable: true, slices: Vec::new() };
            std::iter::repeat_n(gpu, gpus.count as usize)
        };
        let gpus: Vec<Gpu> = study.gpus.iter().flat_map(whole).collect();
        Self {
            cut_until: vec![Moment::default(); gpus.len()],
            gpus,
            lives: BTreeMap::new(),
            target: Target::default(),
            next: 0,
            settled: false,
        }
    }

    pub(super) fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Whether the last decision had nothing left to do and nothing is on its way.
    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    pub(super) fn aim(&mut self, target: Target) {
        self.target = target;
        self.settled = true;
    }

    /// GPUs with at least one replica.
    pub(super) fn gpus_used(&self) -> usize {
        let used = |gpu: &&Gpu| gpu.slices.iter().any(|slice| !slice.replicas.is_empty());
        self.gpus.iter().filter(used).count()
    }

    pub(super) fn replicas(&self) -> usize {
        self.lives.len()
    }

    /// Nothing is on its way any more.
    pub(super) fn all_ready(&mut self) {
        self.lives.values_mut().for_each(|life| life.ready_at = Moment::default());
    }

    pub(super) fn carry_out(&mut self, action: Action, fleet: &SimFleet, now: Moment) {
        self.settled = false;
        match action {
            Action::Cut { gpu, destroy, create } => {
                let delays = fleet.terms.delays;
                let takes =
                    delays.destroy * destroy.len() as u32 + delays.create * create.len() as u32;
                self.cut_until[gpu] = self.cut_until[gpu].max(now) + takes;
                self.cut(gpu, &destroy, &create);
            }
            Action::Start { gpu, position, model, processes, capacity_rps, .. } => {
                let load = fleet.terms.delays.load(fleet.models[model].memory_mib);
                let ready_at = self.cut_until[gpu].max(now) + load;
                let slices = &mut self.gpus[gpu].slices;
                if let Some(slice) = slices.iter_mut().find(|slice| slice.position == position) {
                    let id = self.next;
                    self.next += 1;
                    let (model, state) = (Some(model), State::Starting);
                    slice.replicas.push(Replica {
                        id,
                        model,
                        current: true,
                        processes,
                        state,
                        busy: 0.0,
                    });
                    self.lives.insert(id, Life { ready_at, processes, capacity_rps });
                }
            }
            Action::Stop { replica } => {
                self.lives.remove(&replica);
                for slice in self.gpus.iter_mut().flat_map(|gpu| &mut gpu.slices) {
                    slice.replicas.retain(|one| one.id != replica);
                }
            }
        }
    }

    fn cut(&mut self, gpu: usize, destroy: &[Position], create: &[Position]) {
        let slices = &mut self.gpus[gpu].slices;
        slices.retain(|slice| !destroy.contains(&slice.position));
        slices.extend(create.iter().map(|position| Slice {
            position: *position,
            loaned: false,
            doomed: false,
            replicas: Vec::new(),
        }));
    }

    /// By model, who serves from `now` on.
    pub(super) fn serving(&mut self, models: usize, now: Moment) -> Vec<Vec<Serving>> {
        let mut by_model: Vec<Vec<Serving>> = vec![Vec::new(); models];
        for gpu in &mut self.gpus {
            let kind = gpu.kind;
            for slice in &mut gpu.slices {
                let lives = &self.lives;
                let processes = |one: &Replica| lives.get(&one.id).map_or(0, |life| life.processes);
                let sharers: u32 = slice.replicas.iter().map(processes).sum();
                for one in &mut slice.replicas {
                    let (Some(life), Some(model)) = (lives.get(&one.id), one.model) else {
                        continue;
                    };
                    if life.ready_at > now {
                        self.settled = false;
                        continue;
                    }
                    one.state = State::Ready;
                    let profile = slice.position.profile().name.as_str();
                    let place = ReplicaKind { model, kind: kind.name.as_str(), profile, sharers };
                    let (capacity_rps, processes) = (life.capacity_rps, life.processes);
                    let compute = f64::from(slice.position.profile().compute_slices);
                    let part = compute / f64::from(kind.compute_slices) * f64::from(processes)
                        / f64::from(sharers);
                    by_model[model].push(Serving { place, capacity_rps, processes, part });
                }
            }
        }
        by_model
    }
}

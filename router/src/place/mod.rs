//! Place: the loop that tells workers what there shall be.
//!
//! Each round reads what the workers report and what the configuration asks, asks [`decide`], and
//! sends each worker a new generation if anything differs from the last. What the loop remembers is
//! only what it has asked for; started anew, it takes that from the first reports.

mod decide;
mod fits;
mod spec;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use protocol::{
    Desired, DesiredGpu, DesiredReplica, DesiredSlice, ModelSpec, ReplicaState, Report,
};
use tokio::time::{sleep, timeout};

use self::world::{Spot, World};
pub use self::{
    decide::{Decision, ModelSeen, ReplicaSeen, SliceSeen, Snapshot, WantedBack, decide},
    fits::fits,
};
use crate::{
    config::Config,
    fleet::{Fleet, Seen},
    http::{ServerState, backend::Backend},
    jobs::Seat,
    lend::{Needs, Slices, Wanted},
    model::Failure,
    registry::Registry,
};

/// How often the loop looks when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// The least time between two rounds, so that many changes at once are one.
const REST: Duration = Duration::from_millis(5);

/// What was asked of one worker.
#[derive(Debug, Default)]
struct Assignment {
    replicas: Vec<Assigned>,
    sent: Option<Desired>,
}

/// A replica that was asked for.
#[derive(Clone, Debug)]
struct Assigned {
    id: u32,
    model: String,
    gpu: u32,
    position: String,
    lane: u32,
    digest: u64,
    /// Absent if it was found running and is of no model as now configured.
    spec: Option<ModelSpec>,
    /// It goes once it has no batches.
    leaving: bool,
}

/// What the loop remembers.
#[derive(Debug, Default)]
struct Placer {
    assignments: BTreeMap<String, Assignment>,
    generation: u64,
    unplaced: BTreeSet<String>,
}

/// Places until the router ends.
pub async fn run(state: Weak<ServerState<Registry>>) {
    let mut placer = Placer::default();
    while let Some(state) = state.upgrade() {
        let registry = &state.backend;
        let fleet = Arc::clone(registry.fleet());
        let changed = fleet.changed();
        placer.round(registry, &fleet);
        drop(state);
        // Whether something changed or time passed, the next round looks.
        let _ = timeout(TICK, changed).await;
        sleep(REST).await;
    }
}

impl Placer {
    fn round(&mut self, registry: &Registry, fleet: &Fleet) {
        let config = registry.config_in_force();
        let seen = fleet.look();
        self.meet(&seen);
        // Held for the whole round, so that no slice is lent while it is given to a replica.
        let mut owners = registry.ledger().lock();
        let mut world = World::new(&config, &seen, &owners);
        let (snapshot, who) = self.snapshot(&config, &seen, &mut world);
        let decision = decide(&snapshot);
        self.carry_out(&decision, &who, fleet, registry);
        for (model, slice) in &decision.add {
            let spot = world.spots[*slice].clone();
            self.add(&config, *model, &spot, &mut world);
        }
        owners.serve(self.served(), needs(&decision, &world));
        for worker in &seen {
            self.send(worker, &world, &owners, fleet);
        }
        drop(owners);
        // Without a slice there is no worker yet, which is no want of room.
        if !world.spots.is_empty() {
            self.complain(&decision, &config, registry);
        }
    }

    /// Begins with what a worker says it has, and forgets those that are gone.
    fn meet(&mut self, seen: &[Seen]) {
        self.assignments.retain(|name, _| seen.iter().any(|seen| seen.worker == *name));
        for Seen { worker, report, .. } in seen {
            self.generation = self.generation.max(report.generation);
            self.assignments
                .entry(worker.clone())
                .or_insert_with(|| Assignment { replicas: found(report), sent: None });
        }
    }

    /// The fleet as values, and which assigned replica each of them is.
    fn snapshot(
        &mut self,
        config: &Config,
        seen: &[Seen],
        world: &mut World,
    ) -> (Snapshot, Vec<(String, u32)>) {
        let mut replicas = Vec::new();
        let mut who = Vec::new();
        for Seen { worker, serving, .. } in seen {
            let Some(assignment) = self.assignments.get_mut(worker) else { continue };
            assignment.replicas.retain(|one| world.spot(worker, one).is_some());
            for one in assignment.replicas.iter_mut().filter(|one| !one.leaving) {
                let Some(slice) = world.spot(worker, one) else { continue };
                let model = config.models.iter().position(|model| model.name == one.model);
                let current = model.is_some_and(|model| {
                    let wanted = world.spec(config, model, slice);
                    is_current(one, wanted)
                });
                let memory_mib = one.spec.as_ref().map_or(0, |spec| spec.memory_mib);
                let serves = serving.contains(&one.id);
                replicas.push(ReplicaSeen { model, slice, memory_mib, current, serves });
                who.push((worker.clone(), one.id));
            }
        }
        let models = config
            .models
            .iter()
            .map(|model| ModelSeen { memory_mib: model.memory_mib, least: model.replicas.min });
        let slices = world.spots.iter().map(|spot| spot.seen.clone()).collect();
        (Snapshot { models: models.collect(), slices, replicas }, who)
    }

    fn carry_out(
        &mut self,
        decision: &Decision,
        who: &[(String, u32)],
        fleet: &Fleet,
        registry: &Registry,
    ) {
        let kept: BTreeSet<_> = decision.keep.iter().map(|index| &who[*index]).collect();
        for (worker, assignment) in &mut self.assignments {
            for one in &mut assignment.replicas {
                let key = (worker.clone(), one.id);
                if !one.leaving && !kept.contains(&key) {
                    one.leaving = true;
                    tracing::info!(worker, model = one.model, replica = one.id, "replica leaves");
                    if let Some(model) = registry.model(&one.model) {
                        // Another edition may answer otherwise.
                        model.forget();
                    }
                }
            }
            assignment.replicas.retain(|one| !(one.leaving && fleet.drain(worker, one.id)));
        }
        for (worker, replica) in decision.admit.iter().map(|index| &who[*index]) {
            fleet.admit(worker, *replica);
        }
    }

    fn add(&mut self, config: &Config, model: usize, spot: &Spot, world: &mut World) {
        let Some(assignment) = self.assignments.get_mut(&spot.worker) else { return };
        let id = assignment.replicas.iter().map(|one| one.id).max().unwrap_or(0);
        let id = id.max(world.last_id(&spot.worker)) + 1;
        let spec = world.spec(config, model, spot.index).clone();
        let (worker, position) = (&spot.worker, &spot.position);
        tracing::info!(
            worker,
            gpu = spot.gpu,
            position,
            model = spec.name,
            replica = id,
            "replica placed"
        );
        assignment.replicas.push(Assigned {
            id,
            model: spec.name.clone(),
            gpu: spot.gpu,
            position: spot.position.clone(),
            lane: 0,
            digest: spec.digest(),
            spec: Some(spec),
            leaving: false,
        });
        world.used_id(&spot.worker, id);
    }

    /// The slices that have replicas, or shall.
    fn served(&self) -> BTreeSet<Seat> {
        let mut served = BTreeSet::new();
        for (worker, assignment) in &self.assignments {
            served.extend(assignment.replicas.iter().map(|one| Seat {
                worker: worker.clone(),
                gpu: one.gpu,
                position: one.position.clone(),
            }));
        }
        served
    }

    /// Tells a worker what shall be, if that is news.
    fn send(&mut self, seen: &Seen, world: &World, owners: &Slices, fleet: &Fleet) {
        let Some(assignment) = self.assignments.get_mut(&seen.worker) else { return };
        let gpus = world.gpus(&seen.worker).map(|(gpu, positions)| {
            let mut slices: BTreeMap<&str, DesiredSlice> = BTreeMap::new();
            let empty = |position: &str| {
                let position = position.to_owned();
                DesiredSlice { position, replicas: Vec::new(), rank: None }
            };
            for one in assignment.replicas.iter().filter(|one| one.gpu == gpu) {
                let slice = slices.entry(&one.position).or_insert_with(|| empty(&one.position));
                slice.replicas.push(DesiredReplica {
                    replica: one.id,
                    lane: one.lane,
                    digest: one.digest,
                    spec: one.spec.clone(),
                });
            }
            for (seat, rank) in owners.ranks(&seen.worker).filter(|(seat, _)| seat.gpu == gpu) {
                let slice = slices.entry(&seat.position).or_insert_with(|| empty(&seat.position));
                slice.rank = Some(Box::new(rank.clone()));
            }
            DesiredGpu { gpu, positions, slices: slices.into_values().collect() }
        });
        let gpus: Vec<DesiredGpu> = gpus.collect();
        let behind =
            assignment.sent.as_ref().is_some_and(|sent| seen.report.generation > sent.generation);
        if !behind && assignment.sent.as_ref().is_some_and(|sent| sent.gpus == gpus) {
            return;
        }
        self.generation += 1;
        let desired = Desired { generation: self.generation, gpus };
        assignment.sent = Some(desired.clone());
        fleet.desire(&seen.worker, desired);
    }

    /// Says once of each model that it has no room, and on the model for as long as that is so.
    fn complain(&mut self, decision: &Decision, config: &Config, registry: &Registry) {
        let mut unplaced = BTreeSet::new();
        for (index, none) in &decision.unplaced {
            let name = &config.models[*index].name;
            let (needs_mib, free_mib) = (none.needs_mib, none.most_free_mib);
            if unplaced.insert(name.clone()) && !self.unplaced.contains(name) {
                tracing::warn!(
                    model = name,
                    needs_mib,
                    free_mib,
                    "no slice has room for a replica"
                );
            }
            let reason =
                format!("a replica needs {needs_mib} MiB; no slice has more than {free_mib} left");
            if let Some(model) = registry.model(name) {
                model.failed(Failure { reason, returns: true });
            }
        }
        self.unplaced = unplaced;
    }
}

/// What inference needs of the slices that are lent.
fn needs(decision: &Decision, world: &World) -> Needs {
    let wanted = decision.wanted_back.iter().map(|want| Wanted {
        seats: want.slices.iter().map(|index| world.spots[*index].seat()).collect(),
        count: want.count,
        urgent: want.urgent,
    });
    Needs { wanted: wanted.collect(), ..Needs::default() }
}

/// Whether a replica is of its model as now configured; `wanted` is how that would be loaded here.
///
/// One that takes larger batches than are asked for now serves as well.
fn is_current(one: &mut Assigned, wanted: &ModelSpec) -> bool {
    match &one.spec {
        Some(spec) => {
            let alike = ModelSpec { max_batch: spec.max_batch, ..wanted.clone() };
            alike == *spec && spec.max_batch >= wanted.max_batch
        }
        None => {
            let same = one.digest == wanted.digest();
            if same {
                one.spec = Some(wanted.clone());
            }
            same
        }
    }
}

/// The replicas that a worker has when a router first hears of it.
fn found(report: &Report) -> Vec<Assigned> {
    let mut replicas = Vec::new();
    for gpu in &report.gpus {
        for slice in &gpu.slices {
            let alive = |state: &ReplicaState| match state {
                ReplicaState::Draining | ReplicaState::Failed { .. } => false,
                ReplicaState::Starting
                | ReplicaState::Loading
                | ReplicaState::Warming { .. }
                | ReplicaState::Ready(_) => true,
            };
            replicas.extend(slice.replicas.iter().filter(|one| alive(&one.state)).map(|one| {
                Assigned {
                    id: one.replica,
                    model: one.model.clone(),
                    gpu: gpu.index,
                    position: slice.position.clone(),
                    lane: one.lane,
                    digest: one.digest,
                    spec: None,
                    leaving: false,
                }
            }));
        }
    }
    replicas
}

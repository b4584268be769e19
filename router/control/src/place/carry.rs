//! Doing what was decided.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use config::Config;
use policy::{
    fleet::{Absent, Advice, Link, ReplicaId},
    place::{Action, Decision, State},
};
use protocol::{Desired, DesiredGpu, DesiredReplica, DesiredSlice};

use super::{Placer, assigned::Assigned, groups::Group, world::World};
use crate::{
    control::Control,
    fleet::{Fleet, Seen},
    ledger::Slices,
    plane::DataPlane,
};

impl Placer {
    /// Takes the steps that can be taken now, and lets in who may serve.
    pub(super) fn carry_out(
        &mut self,
        decision: &Decision,
        config: &Config,
        (world, groups): (&mut World, &BTreeMap<u64, Group>),
        (control, owners): (&Control, &Slices),
    ) {
        let mut leaving = BTreeSet::new();
        let lent: BTreeSet<usize> = taken(decision, world, owners);
        for step in decision.now() {
            if step.action.gpu().is_some_and(|gpu| lent.contains(&gpu)) {
                continue;
            }
            self.moved_at = control.clock().now();
            match &step.action {
                Action::Cut { gpu, destroy, create } => {
                    let site = &mut world.sites[*gpu];
                    let positions = site.cut(destroy, create);
                    let (worker, index) = &site.key;
                    tracing::info!(worker, gpu = index, ?positions, why = step.why, "GPU is cut");
                    self.cuts.insert(site.key.clone(), positions);
                }
                Action::Start { gpu, position, model, processes, .. } => {
                    let place = (*gpu, position.to_string());
                    self.start(config, *model, (place, (*processes).max(1)), (&step.why, world));
                }
                Action::Stop { replica } => {
                    leaving.insert(*replica);
                    self.stop(*replica, &step.why);
                }
            }
        }
        self.admit(groups, &leaving, &**control.plane());
        self.drain(&**control.plane());
    }

    /// Lets those that leave finish their batches, once one that takes their place is in rotation.
    fn drain(&mut self, plane: &dyn DataPlane) {
        let mut rotation: HashMap<String, bool> = HashMap::new();
        let mut leaving = Vec::new();
        let links = plane.replicas();
        for (worker, assignment) in &self.assignments {
            for one in &assignment.replicas {
                let id = ReplicaId { worker: worker.clone(), replica: one.id };
                match links.get(&id) {
                    _ if one.leaving => leaving.push((id, one.model.clone())),
                    Some(Link::InRotation { .. }) => {
                        rotation.insert(one.model.clone(), true);
                    }
                    Some(Link::Connected | Link::Draining { .. }) => {
                        rotation.entry(one.model.clone()).or_default();
                    }
                    Some(Link::Connecting) | None => {}
                }
            }
        }
        // Between its successor's connection and the first batch to it is a moment.
        leaving.retain(|(_, model)| rotation.get(model) != Some(&false));
        if leaving.is_empty() {
            return;
        }
        leaving.iter().for_each(|(id, _)| plane.drain(id));
        let links = plane.replicas();
        let is_idle = |id: &ReplicaId| match links.get(id) {
            Some(Link::Draining { busy } | Link::InRotation { busy }) => !busy,
            Some(Link::Connecting | Link::Connected) | None => true,
        };
        for (id, _) in leaving.into_iter().filter(|(id, _)| is_idle(id)) {
            if let Some(assignment) = self.assignments.get_mut(&id.worker) {
                assignment.replicas.retain(|one| one.id != id.replica);
            }
        }
    }

    /// Asks for a replica of some processes.
    fn start(
        &mut self,
        config: &Config,
        model: usize,
        ((gpu, position), processes): ((usize, String), u32),
        (why, world): (&str, &mut World),
    ) {
        let site = &world.sites[gpu];
        let (worker, index) = site.key.clone();
        let spot = site.slices.iter().find(|spot| spot.position.to_string() == position);
        let Some((text, profile)) = spot.map(|spot| (spot.text.clone(), spot.profile.clone()))
        else {
            return;
        };
        let Some(assignment) = self.assignments.get_mut(&worker) else { return };
        self.groups_given += 1;
        let spec = world.spec(config, model, &profile).clone();
        tracing::info!(
            worker,
            gpu = index,
            position = text,
            model = spec.name,
            processes,
            why,
            "replica placed"
        );
        for lane in 0..processes {
            let asked = assignment.replicas.iter().map(|one| one.id).max().unwrap_or(0);
            assignment.replicas.push(Assigned {
                id: world.next_id(&worker, asked),
                group: self.groups_given,
                model: spec.name.clone(),
                gpu: index,
                position: text.clone(),
                lane,
                digest: spec.digest(),
                spec: Some(spec.clone()),
                serves: false,
                leaving: false,
            });
        }
    }

    /// Lets a replica finish its batches and go.
    fn stop(&mut self, group: u64, why: &str) {
        for (worker, assignment) in &mut self.assignments {
            let mine = assignment.replicas.iter_mut();
            for one in mine.filter(|one| one.group == group && !one.leaving) {
                one.leaving = true;
                tracing::info!(worker, model = one.model, replica = one.id, why, "replica leaves");
            }
        }
    }

    /// Lets every replica serve, but none of a new edition beside those of an earlier one.
    fn admit(
        &mut self,
        groups: &BTreeMap<u64, Group>,
        leaving: &BTreeSet<u64>,
        plane: &dyn DataPlane,
    ) {
        let mut earlier = BTreeSet::new();
        for (id, Group { replica, .. }) in groups {
            if !replica.current && replica.state == State::Ready && !leaving.contains(id) {
                earlier.extend(replica.model);
            }
        }
        let waits = |group: &u64| {
            groups.get(group).is_some_and(|Group { replica, .. }| {
                replica.current && replica.model.is_some_and(|model| earlier.contains(&model))
            })
        };
        for (worker, assignment) in &mut self.assignments {
            let mine = assignment.replicas.iter_mut();
            let known = |one: &&mut Assigned| groups.contains_key(&one.group);
            for one in mine.filter(known).filter(|one| !one.leaving && !waits(&one.group)) {
                one.serves = true;
                plane.admit(&ReplicaId { worker: worker.clone(), replica: one.id });
            }
        }
    }

    /// Tells a worker what shall be, if that is news.
    pub(super) fn send(&mut self, seen: &Seen, world: &World, owners: &Slices, fleet: &Fleet) {
        let Some(assignment) = self.assignments.get_mut(&seen.worker) else { return };
        let gpus = world.gpus(&seen.worker).into_iter().map(|(gpu, positions)| {
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
                    serves: one.serves,
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
        let desired = Desired { term: self.term, generation: self.generation, gpus };
        assignment.sent = Some(desired.clone());
        fleet.desire(&seen.worker, desired);
    }

    /// Says once of each model that it has no room, and on the model for as long as that is so.
    pub(super) fn complain(
        &mut self,
        decision: &Decision,
        (config, world): (&Config, &World),
        control: &Control,
    ) {
        // A worker that is drained, or about to go, may come back.
        let is_final = world.sites.iter().all(|site| site.open);
        let mut unplaced = BTreeSet::new();
        for refusal in &decision.refusals {
            let Some(index) = refusal.model else { continue };
            let name = &config.models[index].name;
            let why = &refusal.why;
            if unplaced.insert(name.clone()) && !self.unplaced.contains(name) {
                tracing::warn!(model = name, why, "not placed as it should be");
            }
            let somewhere = decision.target.placed.iter().any(|placed| placed.model == index);
            if is_final && !somewhere {
                let absent = Absent::Failed { why: why.clone(), returns: true };
                control.plane().advise(name, Advice { absent, loads_in: None });
            }
        }
        self.unplaced = unplaced;
    }
}

/// GPUs with a slice that a job was given since the decision was begun, and that it would use.
fn taken(decision: &Decision, world: &World, owners: &Slices) -> BTreeSet<usize> {
    let changed = |gpu: &usize| {
        let site = &world.sites[*gpu];
        site.slices.iter().any(|spot| !spot.lent && owners.is_lent(&site.seat(spot)))
    };
    decision.now().filter_map(|step| step.action.gpu()).filter(changed).collect()
}

//! What shall be in the end.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Leaving, Placed, Refusal, Replica, Snapshot, State, Target,
    situation::{Part, Situation, placeable, unwanted},
};
use crate::plan::{self, Model};

/// A replica goes only if what is left is more than the demand by this part, lest it be missed soon.
const SLACK: f64 = 1.05;

/// What shall be, and what is not done.
pub(super) fn target(snapshot: &Snapshot) -> (Target, Vec<Refusal>) {
    let situation = Situation::new(snapshot);
    let mut refusals = situation.told.clone();
    let mut target = situation.begun();
    situation.hold_pins(&mut target);
    situation.drop_surplus(&mut target);
    situation.readopt(&mut target);
    situation.succeed(&mut target);
    if !situation.short(&target).is_empty() {
        let empty = target.placed.is_empty();
        let repaired = || situation.repair(&target);
        let planned = || situation.plan_anew(&target);
        let found = if empty { planned().or_else(repaired) } else { repaired().or_else(planned) };
        match found {
            Some(placed) => target.replace(placed, "replanned the fleet: not enough free slices"),
            None => situation.share_out(&mut target, &mut refusals),
        }
    } else if snapshot.consolidate {
        situation.consolidate(&mut target, &mut refusals);
    }
    (target, refusals)
}

impl Target {
    /// Takes another placing; what is not in it leaves.
    pub(super) fn replace(&mut self, placed: Vec<Placed>, why: &str) {
        let stays: BTreeSet<u64> = placed.iter().filter_map(|one| one.replica).collect();
        let before = std::mem::replace(&mut self.placed, placed);
        for one in before {
            if let Some(replica) = one.replica.filter(|replica| !stays.contains(replica)) {
                let serves_rps = one.serves_rps;
                self.leaving.push(Leaving { replica, serves_rps, why: why.to_owned() });
            }
        }
    }

    /// Requests per second and replicas of each of so many models.
    pub(super) fn held(&self, models: usize) -> Vec<(f64, u32)> {
        let mut held = vec![(0.0, 0); models];
        for one in &self.placed {
            held[one.model].0 += one.capacity_rps;
            held[one.model].1 += 1;
        }
        held
    }

    fn gpus(&self) -> BTreeSet<usize> {
        self.placed.iter().map(|one| one.gpu).collect()
    }
}

impl Situation<'_> {
    /// Lets go what is not needed: what is still to be started before those that start, these before
    /// the idle, and these before the least busy.
    fn drop_surplus(&self, target: &mut Target) {
        let there: BTreeMap<u64, &Replica> =
            self.there().map(|there| (there.replica.id, there.replica)).collect();
        let of = |index: usize, target: &Target| {
            target.placed[index].replica.and_then(|id| there.get(&id).copied())
        };
        let mut order: Vec<(u8, f64, u64, usize)> = Vec::new();
        for index in 0..target.placed.len() {
            match of(index, target) {
                _ if target.placed[index].pinned => {}
                None => order.push((0, 0.0, u64::MAX, index)),
                Some(replica) => {
                    let stage = if replica.state == State::Starting { 1 } else { 2 };
                    order.push((stage, replica.busy, replica.id, index));
                }
            }
        }
        order.sort_by(|a, b| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then((b.2, b.3).cmp(&(a.2, a.3)))
        });
        let mut held = target.held(self.models.len());
        let mut stays = vec![true; target.placed.len()];
        for (_, _, _, index) in order {
            let one = &target.placed[index];
            let model = &self.models[one.model];
            let (has_rps, count) = held[one.model];
            let left_rps = has_rps - one.capacity_rps;
            let spare = count > model.replicas_min && left_rps >= model.demand_rps * SLACK;
            if placeable(model) && (spare || count > model.replicas_max || unwanted(model)) {
                held[one.model] = (left_rps, count - 1);
                stays[index] = false;
                if let Some(replica) = one.replica {
                    let why = format!(
                        "{} needs {:.1} rows/s, and {left_rps:.1} remain without it",
                        model.name, model.demand_rps
                    );
                    target.leaving.push(Leaving { replica, serves_rps: one.serves_rps, why });
                }
            }
        }
        let mut stays = stays.into_iter();
        target.placed.retain(|_| stays.next().unwrap_or(true));
    }

    pub(super) fn short(&self, target: &Target) -> Vec<usize> {
        let held = target.held(self.models.len());
        let lacks = |index: &usize| {
            let (has_rps, count) = held[*index];
            let model = &self.models[*index];
            let wanted = placeable(model) && !unwanted(model);
            wanted
                && (has_rps < model.demand_rps * (1.0 - 1e-9) || count < model.replicas_min.max(1))
        };
        (0..self.models.len()).filter(lacks).collect()
    }

    /// Adds replicas where there is room, and touches nothing else.
    pub(super) fn repair(&self, target: &Target) -> Option<Vec<Placed>> {
        let all: Vec<usize> = (0..self.snapshot.gpus.len()).collect();
        let Part { problem, names } = self.problem(&all, target, |_| false);
        let current = self.taken(target, &names);
        let added = plan::repair(&problem, &current, &self.sites(target))?;
        let held = target.held(self.models.len());
        let needs = |model: usize| {
            let Model { name, demand_rps, replicas_min, .. } = &self.models[model];
            let (has_rps, count) = held[model];
            if has_rps < *demand_rps {
                format!("{name} needs {demand_rps:.1} rows/s and has {has_rps:.1}; ")
            } else {
                let least = (*replicas_min).max(1);
                format!("{name} has {count} replicas and needs {least} at least; ")
            }
        };
        let mut placed = target.placed.clone();
        placed.extend(added.iter().flat_map(|slice| {
            slice.replicas.iter().map(|replica| Placed {
                gpu: slice.gpu,
                position: slice.position,
                model: names[replica.model],
                replica: None,
                batch: replica.batch,
                processes: replica.processes,
                capacity_rps: replica.capacity_rps,
                serves_rps: replica.capacity_rps,
                pinned: false,
                why: needs(names[replica.model]) + &self.why(names[replica.model], &replica.why),
            })
        }));
        Some(placed)
    }

    /// Plans the GPUs that are free to be cut, beside what is on the others.
    pub(super) fn plan_anew(&self, target: &Target) -> Option<Vec<Placed>> {
        let free: Vec<usize> = (0..self.snapshot.gpus.len())
            .filter(|gpu| self.snapshot.gpus[*gpu].is_free())
            .filter(|gpu| self.pins.iter().all(|pin| pin.gpu != *gpu))
            .collect();
        let fixed = |one: &Placed| free.binary_search(&one.gpu).is_err();
        let Part { problem, names } = self.problem(&free, target, fixed);
        let mut placed: Vec<Placed> =
            target.placed.iter().filter(|one| fixed(one)).cloned().collect();
        if problem.models.is_empty() {
            return Some(placed);
        }
        let current = self.current(target, &free, &names);
        let plan = plan::solve_from(&problem, &current).ok()?;
        placed.extend(self.matched(&plan, target, &free, &names));
        Some(placed)
    }

    /// Looks for a plan with fewer GPUs, and takes it if it saves a whole one.
    fn consolidate(&self, target: &mut Target, refusals: &mut Vec<Refusal>) {
        let used = target.gpus().len();
        let mut refuse = |why: String| refusals.push(Refusal { model: None, why });
        let ready: BTreeSet<u64> = self
            .there()
            .filter(|there| there.replica.state == State::Ready)
            .map(|there| there.replica.id)
            .collect();
        let under_way = |one: &&Placed| one.replica.is_none_or(|id| !ready.contains(&id));
        let count = target.placed.iter().filter(under_way).count();
        if count > 0 {
            refuse(format!("nothing is moved: {count} replicas are not ready yet"));
            return;
        }
        match self.plan_anew(target) {
            Some(placed) => {
                let gpus: BTreeSet<usize> = placed.iter().map(|one| one.gpu).collect();
                if gpus.len() < used {
                    let why = format!("a plan on {} GPUs instead of {used}", gpus.len());
                    target.replace(placed, &why);
                } else {
                    let told = "nothing is moved: a new plan needs";
                    refuse(format!("{told} {} GPUs; {used} are in use", gpus.len()));
                }
            }
            None => refuse("nothing is moved: no other plan was found".to_owned()),
        }
    }
}

//! The snapshot as the planner sees it.

use std::collections::{BTreeMap, BTreeSet};

use mig::{Kind, Position, Profile};

use super::{
    Pin, Placed, Refusal, Slice, Snapshot, Target, homes::at_home, pinned::in_force, reasons::Lack,
};
use crate::plan::{self, Choice, Gpus, Measured, Model, Plan, Problem, Row, Site};

/// The part of what counted replicas serve that is asked of them: one fewer is too few, and they are
/// enough.
const MOST_OF: f64 = 0.9;
const MIB_PER_GIB: f64 = 1024.0;

/// A GPU and the slice on it, from its start to its end.
pub(super) type Spot = (usize, u8, u8);

pub(super) fn spot(gpu: usize, position: Position) -> Spot {
    (gpu, position.start(), position.end())
}

/// The snapshot, in which replicas are counted of models of which nothing was measured.
pub(super) struct Situation<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) models: Vec<Model>,
    pub(super) pins: Vec<&'a Pin>,
    pub(super) told: Vec<Refusal>,
    unknown: BTreeSet<usize>,
}

impl<'a> Situation<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let (mut told, mut unknown) = (Vec::new(), BTreeSet::new());
        let mut models = Vec::with_capacity(snapshot.models.len());
        for (index, model) in snapshot.models.iter().enumerate() {
            let model = at_home(model, snapshot);
            if model.measured.is_empty() {
                unknown.insert(index);
            }
            let (model, why) = feasible(counted(&model, snapshot), snapshot);
            told.extend(why.map(|why| Refusal { model: Some(index), why }));
            models.push(model);
        }
        let pins = in_force(snapshot, &mut models, &mut told);
        Self { snapshot, models, pins, told, unknown }
    }

    /// Why a new replica is where it is, if the planner says `why`.
    pub(super) fn why(&self, model: usize, why: &str) -> String {
        if self.unknown.contains(&model) {
            return "no measurements yet; placed on any slice with enough memory".to_owned();
        }
        why.to_owned()
    }

    pub(super) fn with(&self, models: Vec<Model>) -> Self {
        let (pins, unknown) = (self.pins.clone(), self.unknown.clone());
        Self { snapshot: self.snapshot, models, pins, told: Vec::new(), unknown }
    }
}

pub(super) struct Part {
    pub(super) problem: Problem,
    /// The index of each of its models in the snapshot.
    pub(super) names: Vec<usize>,
}

impl Situation<'_> {
    /// What is left to be served on `gpus`, once those of the target that are `fixed` do their part.
    pub(super) fn problem(
        &self,
        gpus: &[usize],
        target: &Target,
        fixed: impl Fn(&Placed) -> bool,
    ) -> Part {
        let mut names = Vec::new();
        let mut models = Vec::new();
        let wanted = |model: &Model| placeable(model) && !unwanted(model);
        for (index, model) in self.models.iter().enumerate().filter(|(_, model)| wanted(model)) {
            let mut model = model.clone();
            model.replicas_min = model.replicas_min.max(1);
            for one in target.placed.iter().filter(|one| one.model == index && fixed(one)) {
                model.demand_rps = (model.demand_rps - one.capacity_rps).max(0.0);
                model.replicas_min = model.replicas_min.saturating_sub(1);
                model.replicas_max = model.replicas_max.saturating_sub(1);
            }
            if model.demand_rps > 0.0 || model.replicas_min > 0 {
                names.push(index);
                models.push(model);
            }
        }
        let fleet =
            gpus.iter().map(|gpu| Gpus { kind: self.snapshot.gpus[*gpu].kind, count: 1 }).collect();
        Part { problem: Problem { models, fleet, rules: self.snapshot.rules }, names }
    }

    /// What of the target is on `gpus`, as the planner sees it.
    pub(super) fn current(
        &self,
        target: &Target,
        gpus: &[usize],
        names: &[usize],
    ) -> Vec<plan::Slice> {
        let mut slices: Vec<plan::Slice> = Vec::new();
        let mut known: BTreeMap<Spot, usize> = BTreeMap::new();
        for one in &target.placed {
            let (Ok(gpu), Ok(model)) =
                (gpus.binary_search(&one.gpu), names.binary_search(&one.model))
            else {
                continue;
            };
            let replica = plan::Replica {
                model,
                batch: one.batch.max(1),
                processes: one.processes.max(1),
                capacity_rps: one.capacity_rps,
                latency_ms: 0.0,
                worst_ms: 0.0,
                slowdown: 1.0,
                why: one.why.clone(),
            };
            let index = *known.entry(spot(gpu, one.position)).or_insert_with(|| {
                slices.push(plan::Slice {
                    gpu,
                    kind: &self.snapshot.gpus[one.gpu].kind.name,
                    position: one.position,
                    replicas: Vec::new(),
                });
                slices.len() - 1
            });
            slices[index].replicas.push(replica);
        }
        slices
    }

    /// What of all GPUs is taken: by the target, by jobs, by what still drains.
    pub(super) fn taken(&self, target: &Target, names: &[usize]) -> Vec<plan::Slice> {
        let all: Vec<usize> = (0..self.snapshot.gpus.len()).collect();
        let mut taken = self.current(target, &all, names);
        let known: BTreeSet<Spot> =
            taken.iter().map(|slice| spot(slice.gpu, slice.position)).collect();
        for (gpu, on) in self.snapshot.gpus.iter().enumerate() {
            for slice in &on.slices {
                let known = known.contains(&spot(gpu, slice.position)) || slice.doomed;
                if !known && (slice.loaned || !slice.replicas.is_empty()) {
                    let (kind, position) = (on.kind.name.as_str(), slice.position);
                    taken.push(plan::Slice { gpu, kind, position, replicas: Vec::new() });
                }
            }
        }
        taken
    }

    pub(super) fn sites(&self, target: &Target) -> BTreeMap<usize, Site> {
        let used: BTreeSet<Spot> =
            target.placed.iter().map(|one| spot(one.gpu, one.position)).collect();
        let sites = self.snapshot.gpus.iter().enumerate().map(|(index, gpu)| {
            let doomed = |slice: &&Slice| slice.doomed && !slice.replicas.is_empty();
            let doomed = || gpu.slices.iter().filter(doomed);
            let empty = gpu
                .slices
                .iter()
                .filter(|slice| !slice.loaned && !slice.doomed)
                .filter(|slice| slice.replicas.is_empty())
                .map(|slice| slice.position)
                .filter(|position| !used.contains(&spot(index, *position)))
                .filter(|position| !doomed().any(|slice| slice.position.overlaps(*position)));
            (index, Site { empty: empty.collect(), cuttable: gpu.cuttable, open: gpu.healthy })
        });
        sites.collect()
    }

    /// A plan's replicas, as those that exist where the plan has them and as new ones elsewhere.
    pub(super) fn matched(
        &self,
        plan: &Plan,
        target: &Target,
        gpus: &[usize],
        names: &[usize],
    ) -> Vec<Placed> {
        let place = |one: &&Placed| (spot(one.gpu, one.position), one.model);
        let existing: BTreeMap<(Spot, usize), &Placed> =
            target.placed.iter().map(|one| (place(&one), one)).collect();
        let mut placed = Vec::new();
        for slice in &plan.slices {
            for replica in &slice.replicas {
                let (gpu, model) = (gpus[slice.gpu], names[replica.model]);
                let same = existing.get(&(spot(gpu, slice.position), model));
                placed.push(Placed {
                    gpu,
                    position: slice.position,
                    model,
                    replica: same.and_then(|one| one.replica),
                    batch: replica.batch,
                    processes: replica.processes,
                    capacity_rps: replica.capacity_rps,
                    serves_rps: same.map_or(replica.capacity_rps, |one| one.serves_rps),
                    pinned: false,
                    why: same.map_or_else(|| self.why(model, &replica.why), |one| one.why.clone()),
                });
            }
        }
        placed
    }
}

/// Whether nothing of the model need be there.
pub(super) fn unwanted(model: &Model) -> bool {
    model.demand_rps <= 0.0 && model.replicas_min == 0
}

/// Whether there is a slice that it could be on.
pub(super) fn placeable(model: &Model) -> bool {
    !model.measured.is_empty()
}

/// A model that no slice serves in its share of the objective is put where it is fastest, and one that
/// no slice serves in time at all anywhere; of one that can be nowhere, no measurement is left.
fn feasible(mut model: Model, snapshot: &Snapshot) -> (Model, Option<String>) {
    let Snapshot { gpus, rules, .. } = snapshot;
    let on: Vec<(&Kind, &Profile)> = kinds(snapshot)
        .into_iter()
        .flat_map(|kind| kind.profiles.iter().map(move |profile| (kind, profile)))
        .collect();
    let fastest = |ways: &Vec<Choice>| {
        let allowed = ways.iter().filter(|way| way.processes <= rules.max_processes);
        allowed.map(|way| way.latency_ms).reduce(f64::min)
    };
    let fastest_ms: Vec<f64> = plan::ways(&model, &on).iter().filter_map(fastest).collect();
    let Model { name, slo_ms, .. } = &model;
    let mut told = None;
    let limit_ms = rules.latency_share * slo_ms;
    let Some(least_ms) = fastest_ms.iter().copied().reduce(f64::min) else {
        if !gpus.is_empty() {
            let largest_gib = on.iter().map(|(_, profile)| profile.memory_gib).fold(0.0, f64::max);
            let largest_mib = largest_gib * MIB_PER_GIB;
            let needs_mib = model.memory_mib.filter(|mib| *mib as f64 > largest_mib);
            told = Some(Lack::Nowhere { model: name, needs_mib, largest_mib }.to_string());
        }
        model.measured.clear();
        return (model, told);
    };
    if least_ms > limit_ms {
        let (where_to, needs_ms) = if least_ms > *slo_ms {
            ("anywhere", fastest_ms.iter().copied().fold(least_ms, f64::max))
        } else {
            ("where it is fastest", least_ms)
        };
        let (place, slo_ms) = (where_to, *slo_ms);
        let lack = Lack::Objective { model: name, place, slo_ms, limit_ms, least_ms };
        told = Some(lack.to_string());
        model.slo_ms = needs_ms / rules.latency_share * 1.001;
    }
    (model, told)
}

pub(super) fn kinds(snapshot: &Snapshot) -> Vec<&'static Kind> {
    let mut kinds: Vec<&'static Kind> = Vec::new();
    for gpu in &snapshot.gpus {
        if !kinds.iter().any(|kind| kind.name == gpu.kind.name) {
            kinds.push(gpu.kind);
        }
    }
    kinds
}

/// A model of which nothing was measured needs a slice to itself, any with memory for it. How many it
/// needs no rate can say: they are as many as its fewest, and each is counted as one.
fn counted(model: &Model, snapshot: &Snapshot) -> Model {
    let mut model = model.clone();
    if model.measured.is_empty() {
        // One batch in its share of the objective: whatever it is, demand is told in the same.
        let throughput_rps = 1e3 / (snapshot.rules.latency_share * model.slo_ms);
        if model.demand_rps > 0.0 {
            model.demand_rps = MOST_OF * throughput_rps * f64::from(model.replicas_min.max(1));
        }
        for kind in kinds(snapshot).into_iter().filter(|kind| model.home.suits(kind)) {
            let rows = kind.profiles.iter().map(|profile| Row {
                profile: profile.name.clone(),
                batch: 1,
                processes: 1,
                throughput_rps,
            });
            let name = Some(kind.name.clone());
            model.measured.push(Measured { kind: name, rows: rows.collect() });
        }
    }
    model
}

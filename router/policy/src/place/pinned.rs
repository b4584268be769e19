//! Replicas that an operator wants at a certain place.
//!
//! A pin holds as long as its place can be had; one that does not is told, and its model is placed as
//! if there were none. What is in the way of a new pin leaves as everything does: its successor first.

use mig::Position;

use super::{
    Leaving, Placed, Refusal, Slice, Snapshot, Target,
    existing::kept,
    reasons::Lack,
    situation::{Situation, placeable},
};
use crate::plan::{self, Choice, Model};

const MIB_PER_GIB: f64 = 1024.0;

/// A replica that shall be where an operator says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub model: usize,
    pub gpu: usize,
    pub position: Position,
    /// Where its model shall leave for it: GPU and slice.
    pub from: Option<(usize, Position)>,
    pub by: String,
}

impl Pin {
    /// Whether a replica of its model shall leave that place.
    pub(super) fn vacates(&self, model: usize, gpu: usize, position: Position) -> bool {
        self.model == model && self.from == Some((gpu, position))
    }

    fn is_at(&self, one: &Placed) -> bool {
        (one.model, one.gpu, one.position) == (self.model, self.gpu, self.position)
    }
}

/// Why a pin cannot hold beside those of the snapshot; nothing if it can.
pub fn obstacle(snapshot: &Snapshot, pin: &Pin) -> Option<String> {
    let situation = Situation::new(snapshot);
    let others: Vec<&Pin> = situation.pins.iter().copied().filter(|one| *one != pin).collect();
    in_the_way(pin, snapshot, &situation.models, &others)
}

/// The pins that hold, which their models must have at least; of the others is told why they do not.
pub(super) fn in_force<'a>(
    snapshot: &'a Snapshot,
    models: &mut [Model],
    told: &mut Vec<Refusal>,
) -> Vec<&'a Pin> {
    let mut holding: Vec<&Pin> = Vec::new();
    for pin in &snapshot.pins {
        if let Some(why) = in_the_way(pin, snapshot, models, &holding) {
            let name = models.get(pin.model).map_or("a model", |model| model.name.as_str());
            let Pin { position, by, .. } = pin;
            let position = position.to_string();
            let lack = Lack::Pin { model: name, position: &position, by, why: &why };
            told.push(Refusal { model: Some(pin.model), why: lack.to_string() });
        } else {
            holding.push(pin);
        }
    }
    for (index, model) in models.iter_mut().enumerate() {
        let pins = holding.iter().filter(|pin| pin.model == index).count() as u32;
        model.replicas_min = model.replicas_min.max(pins);
        model.replicas_max = model.replicas_max.max(pins);
    }
    holding
}

fn in_the_way(pin: &Pin, snapshot: &Snapshot, models: &[Model], others: &[&Pin]) -> Option<String> {
    let (gpu, model) = (snapshot.gpus.get(pin.gpu)?, models.get(pin.model)?);
    let (position, profile) = (pin.position, pin.position.profile());
    let slice = gpu.slices.iter().find(|slice| slice.position == position);
    let memory_mib = |model: &Model| model.memory_mib.map_or(0.0, |stated| stated as f64);
    let slice_mib = profile.memory_gib * MIB_PER_GIB;
    let lent = |slice: &Slice| slice.loaned && slice.position.overlaps(position);
    let on_gpu = || others.iter().filter(|other| other.gpu == pin.gpu);
    let across = |other: &&&Pin| other.position != position && other.position.overlaps(position);
    let beside = on_gpu().filter(|other| other.position == position);
    let beside_mib: f64 = beside.map(|other| memory_mib(&models[other.model])).sum();
    if !gpu.healthy {
        return Some("its GPU is failed, leaving or drained".to_owned());
    }
    if !model.home.suits(gpu.kind) {
        return Some("its model runs on other devices, which the fleet has".to_owned());
    }
    if slice.is_none() && !(gpu.cuttable && gpu.kind.positions().contains(&position)) {
        return Some("the GPU has no such slice and cannot be reshaped".to_owned());
    }
    if slice.is_none() && profile.media {
        return Some("slices with media engines are not created".to_owned());
    }
    if slice.is_some_and(|slice| slice.doomed) {
        return Some("the slice is being removed".to_owned());
    }
    if memory_mib(model) > slice_mib || !placeable(model) {
        let needs_mib = memory_mib(model);
        return Some(format!("a replica needs {needs_mib} MiB; the slice has {slice_mib:.0}"));
    }
    if let Some(other) = on_gpu().find(across) {
        let Pin { position, by, .. } = other;
        let name = &models[other.model].name;
        return Some(format!("it overlaps {position}, where operator {by} pinned {name}"));
    }
    if beside_mib + memory_mib(model) > slice_mib {
        return Some(format!(
            "pinned replicas of other models take {beside_mib:.0} of its {slice_mib:.0} MiB"
        ));
    }
    gpu.slices.iter().any(lent).then(|| "it is lent to a job".to_owned())
}

impl Situation<'_> {
    /// Puts every pinned replica where it shall be; what is in its way shall leave.
    pub(super) fn hold_pins(&self, target: &mut Target) {
        for pin in &self.pins {
            let Pin { position, by, .. } = pin;
            let why = format!("moved to {position} by operator {by}");
            target.evict(&why, |one| pin.vacates(one.model, one.gpu, one.position));
            if !target.placed.iter().any(|one| pin.is_at(one)) {
                self.make_room(target, pin);
                let placed =
                    self.taken_back(target, pin).unwrap_or_else(|| self.new_at(target, pin));
                target.placed.push(placed);
            }
            for one in target.placed.iter_mut().filter(|one| pin.is_at(one)) {
                one.pinned = true;
                one.why = format!("pinned by operator {by}");
            }
        }
    }

    /// Whoever is across the slice leaves, and so do those on it that leave too little memory.
    fn make_room(&self, target: &mut Target, pin: &Pin) {
        let name = &self.models[pin.model].name;
        let why = format!("{name} was pinned there by operator {}", pin.by);
        let position = pin.position;
        let here = |one: &Placed| one.gpu == pin.gpu && one.position == position;
        target.evict(&why, |one| {
            one.gpu == pin.gpu && one.position != position && one.position.overlaps(position)
        });
        while self.shared(target, pin.gpu, position).free_mib < self.memory_mib(pin.model) {
            let unpinned =
                |one: &Placed| here(one) && !self.pins.iter().any(|other| other.is_at(one));
            let Some(one) = target.placed.iter().find(|one| unpinned(one)) else { return };
            let model = one.model;
            target.evict(&why, |one| unpinned(one) && one.model == model);
        }
    }

    /// The replica that is there already and was to leave.
    fn taken_back(&self, target: &mut Target, pin: &Pin) -> Option<Placed> {
        let is_it = |there: &super::existing::There<'_>| {
            (there.gpu, there.slice.position) == (pin.gpu, pin.position)
                && self.may_stay(there) == Ok(pin.model)
        };
        let there = self.there().find(is_it)?;
        let leaves = |one: &Leaving| one.replica == there.replica.id;
        let index = target.leaving.iter().position(leaves)?;
        let Leaving { serves_rps, .. } = target.leaving.remove(index);
        Some(kept(&there, pin.model, serves_rps))
    }

    fn new_at(&self, target: &Target, pin: &Pin) -> Placed {
        let Pin { model, gpu, position, .. } = *pin;
        let count = self.shared(target, gpu, position).count;
        let alone = self.best_way(model, gpu, position).filter(|_| count == 0);
        let (batch, processes) = alone.map_or((0, 1), |way| (way.batch, way.processes));
        let capacity_rps = self.alone_rps(model, gpu, position) / f64::from(count + 1);
        Placed {
            gpu,
            position,
            model,
            replica: None,
            batch,
            processes,
            capacity_rps,
            serves_rps: capacity_rps,
            pinned: true,
            why: String::new(),
        }
    }

    /// How a model serves most on a slice that it has to itself, within its objective.
    pub(super) fn best_way(&self, model: usize, gpu: usize, position: Position) -> Option<Choice> {
        let rules = &self.snapshot.rules;
        let model = &self.models[model];
        let limit_ms = rules.latency_share * model.slo_ms + 1e-9;
        let kind = self.snapshot.gpus[gpu].kind;
        let ways = plan::ways(model, &[(kind, position.profile())]);
        let allowed =
            |way: &Choice| way.latency_ms <= limit_ms && way.processes <= rules.max_processes;
        let allowed = ways.into_iter().flatten().filter(allowed);
        allowed.reduce(|best, way| if way.capacity_rps > best.capacity_rps { way } else { best })
    }
}

impl Target {
    fn evict(&mut self, why: &str, meant: impl Fn(&Placed) -> bool) {
        let stays = self.placed.iter().filter(|one| !meant(one)).cloned().collect();
        self.replace(stays, why);
    }
}

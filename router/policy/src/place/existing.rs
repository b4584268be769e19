//! Where a decision starts from: the last one's target, as far as it still holds, or else all that is
//! there.

use std::collections::{BTreeMap, BTreeSet};

use mig::Position;

use super::{
    Gpu, Leaving, Placed, Replica, Slice, State, Target,
    situation::{Situation, Spot, spot},
};

/// Why a replica is left where it is.
const THERE: &str = "it is there";

#[derive(Clone, Copy, Debug)]
pub(super) struct There<'a> {
    pub(super) replica: &'a Replica,
    pub(super) gpu: usize,
    pub(super) slice: &'a Slice,
}

impl Situation<'_> {
    pub(super) fn there(&self) -> impl Iterator<Item = There<'_>> {
        let slices = self.snapshot.gpus.iter().enumerate();
        let slices = slices.flat_map(|(gpu, on)| on.slices.iter().map(move |slice| (gpu, slice)));
        slices.flat_map(|(gpu, slice)| {
            slice.replicas.iter().map(move |replica| There { replica, gpu, slice })
        })
    }

    /// What of the last target can still be, and, with no last target, every replica that may stay.
    pub(super) fn begun(&self) -> Target {
        let last = &self.snapshot.last;
        let mut target = Target::default();
        let mut claimed = BTreeSet::new();
        for one in &last.placed {
            let found = self.same(one).filter(|id| claimed.insert(*id));
            if found.is_some() || (one.replica.is_none() && self.may_start(one)) {
                let was = if one.pinned { THERE } else { &one.why };
                let (pinned, why) = (false, was.to_owned());
                target.placed.push(Placed { replica: found, pinned, why, ..one.clone() });
            }
        }
        let was_leaving: BTreeMap<u64, &Leaving> =
            last.leaving.iter().map(|one| (one.replica, one)).collect();
        for there in self.there().filter(|there| !claimed.contains(&there.replica.id)) {
            let replica = there.replica.id;
            let known = was_leaving.get(&replica);
            let serves_rps = known.map_or_else(|| self.serves_rps(&there), |one| one.serves_rps);
            let mut leave = |why: &str| {
                target.leaving.push(Leaving { replica, serves_rps, why: why.to_owned() });
            };
            match (self.may_stay(&there), known) {
                (Ok(_), Some(known)) => leave(&known.why),
                (Ok(model), None) => target.placed.push(kept(&there, model, serves_rps)),
                (Err(why), _) => leave(why),
            }
        }
        self.settle(&mut target);
        target
    }

    /// The replica that is what the last target wanted, if it exists and may stay.
    fn same(&self, last: &Placed) -> Option<u64> {
        let on = self.snapshot.gpus.get(last.gpu)?;
        let slice = on.slices.iter().find(|slice| slice.position == last.position)?;
        let is_it = |one: &&Replica| {
            last.replica.is_none_or(|id| id == one.id)
                && self.may_stay(&There { replica: one, gpu: last.gpu, slice }) == Ok(last.model)
        };
        slice.replicas.iter().find(is_it).map(|one| one.id)
    }

    /// Whether what was to be started still can be.
    fn may_start(&self, last: &Placed) -> bool {
        let Some(gpu) = self.snapshot.gpus.get(last.gpu) else { return false };
        let closed = |slice: &Slice| slice.loaned && slice.position.overlaps(last.position);
        let exists = gpu.slices.iter().any(|slice| slice.position == last.position);
        gpu.healthy
            && self.models.get(last.model).is_some_and(|model| model.home.suits(gpu.kind))
            && gpu.kind.positions().contains(&last.position)
            && (gpu.cuttable || exists)
            && !gpu.slices.iter().any(closed)
    }

    pub(super) fn may_stay(&self, there: &There<'_>) -> Result<usize, &'static str> {
        let gpu: &Gpu = &self.snapshot.gpus[there.gpu];
        let model = there.replica.model.ok_or("its model is no longer configured")?;
        if !gpu.healthy {
            return Err("its GPU is failed, leaving or drained");
        }
        if !self.models[model].home.suits(gpu.kind) {
            return Err("its model runs on other devices, which the fleet has");
        }
        if there.slice.doomed {
            return Err("its slice is being removed");
        }
        if !there.replica.current {
            return Err("its model or its executor has a new revision");
        }
        match there.replica.state {
            State::Starting | State::Ready => Ok(model),
            State::Draining => Err("it is draining"),
            State::Failed => Err("it failed"),
        }
    }

    /// What a replica of which nothing is remembered serves: all that its slice can, or as much of
    /// that as others on it leave.
    fn serves_rps(&self, there: &There<'_>) -> f64 {
        let Some(model) = there.replica.model else { return 0.0 };
        let whole_rps = self.alone_rps(model, there.gpu, there.slice.position);
        whole_rps / there.slice.replicas.len().max(1) as f64
    }

    /// What a model serves on a slice that it has to itself.
    pub(super) fn alone_rps(&self, model: usize, gpu: usize, position: Position) -> f64 {
        self.best_way(model, gpu, position).map_or(0.0, |way| way.capacity_rps)
    }

    /// Where a slice has come to have exactly those it shall, each serves what it shall.
    fn settle(&self, target: &mut Target) {
        let mut wanted: BTreeMap<Spot, (usize, usize)> = BTreeMap::new();
        for one in &target.placed {
            let (all, exist) = wanted.entry(spot(one.gpu, one.position)).or_default();
            *all += 1;
            *exist += usize::from(one.replica.is_some());
        }
        let mut present: BTreeMap<Spot, usize> = BTreeMap::new();
        for there in self.there() {
            *present.entry(spot(there.gpu, there.slice.position)).or_default() += 1;
        }
        for one in &mut target.placed {
            let place = spot(one.gpu, one.position);
            let (all, exist) = wanted.get(&place).copied().unwrap_or_default();
            if all == 1 && exist == 1 {
                // More may have been learned since it was planned.
                one.capacity_rps = self.alone_rps(one.model, one.gpu, one.position);
            }
            if all == exist && present.get(&place) == Some(&all) {
                one.serves_rps = one.capacity_rps;
            }
        }
    }

    /// Takes back replicas that were to leave, for models that have too little.
    pub(super) fn readopt(&self, target: &mut Target) {
        for there in self.there() {
            let Ok(model) = self.may_stay(&there) else { continue };
            if self.pins.iter().any(|pin| pin.vacates(model, there.gpu, there.slice.position)) {
                continue;
            }
            let position = there.slice.position;
            let free = |one: &Placed| one.gpu != there.gpu || !one.position.overlaps(position);
            let leaves = |one: &Leaving| one.replica == there.replica.id;
            let Some(index) = target.leaving.iter().position(leaves) else { continue };
            let count = target.held(self.models.len())[model].1;
            let few = count < self.models[model].replicas_max;
            if few && self.short(target).contains(&model) && target.placed.iter().all(free) {
                let Leaving { serves_rps, .. } = target.leaving.remove(index);
                target.placed.push(kept(&there, model, serves_rps));
            }
        }
    }
}

/// A replica that is left where it is.
pub(super) fn kept(there: &There<'_>, model: usize, serves_rps: f64) -> Placed {
    Placed {
        gpu: there.gpu,
        position: there.slice.position,
        model,
        replica: Some(there.replica.id),
        batch: 0,
        processes: there.replica.processes,
        capacity_rps: serves_rps,
        serves_rps,
        pinned: false,
        why: THERE.to_owned(),
    }
}

//! What an operator's change would lead to: the same decision on a changed world.

mod effect;
mod fits;

use std::time::Duration;

use policy::{
    fleet::SliceId,
    place::obstacle,
    round::{PinOrder, World, foresee, foreseen_pin},
};

use self::effect::{between, of_model, too_slow};
pub use self::{
    effect::{Affected, Comparison, Consequence, Intended, Prospect, Provided},
    fits::fits,
};
use crate::{
    orders::{self, OrderError, StandingOrders},
    plan::{Decided, Planned},
    world::pin_order,
};

impl Planned {
    /// What would be planned if a model had another objective, beside what is; nothing if the model
    /// was in no round yet. Plans twice: not for a thread that others wait for.
    pub fn with_objective(&self, model: &str, slo: Duration) -> Option<Comparison> {
        let from = self.last.lock().from.clone()?;
        let changed = with_slo(&from.world, model, slo)?;
        let (before, after) = (foresee(&from.world, &from.memory), foresee(&changed, &from.memory));
        of_model(&before, &after, model)
    }

    /// Why a model cannot keep an objective on any slice that it was measured on; nothing if it can, or
    /// if nothing is known. Plans once.
    pub fn unkeepable(&self, model: &str, slo: Duration) -> Option<String> {
        let from = self.last.lock().from.clone()?;
        let snapshot = foresee(&with_slo(&from.world, model, slo)?, &from.memory).snapshot;
        let index = snapshot.models.iter().position(|known| known.name == model)?;
        let batch_ms = too_slow(&snapshot, index)?;
        let (slo_ms, share) = (slo.as_secs_f64() * 1e3, snapshot.rules.latency_share);
        let least_ms = (batch_ms / share).ceil();
        Some(format!(
            "no slice can keep slo_ms {slo_ms} for {model}: its quickest measured batch takes \
             {batch_ms:.1} ms and may take {share} of the objective (latency_share); give at least \
             {least_ms:.0}"
        ))
    }

    /// What draining a worker would lead to; nothing before the first round. Plans twice.
    pub fn without(&self, worker: &str, standing: &StandingOrders) -> Option<Consequence> {
        let from = self.last.lock().from.clone()?;
        let before = from.under(standing);
        let mut after = before.clone();
        after.drained.insert(worker.to_owned());
        let plan = |world: &World| foresee(world, &from.memory);
        Some(between(&plan(&before), &plan(&after)).with_demand_of(&self.state()))
    }

    /// What a pin would lead to, or why it cannot be. Plans twice.
    pub fn with_pin(
        &self,
        pin: &orders::Pin,
        standing: &StandingOrders,
    ) -> Result<Consequence, OrderError> {
        let from = self.last.lock().from.clone();
        let undecided = || conflict("the planner has not decided anything yet".to_owned());
        let from = from.ok_or_else(undecided)?;
        let wanted = pin_order(pin);
        let replaced = |one: &PinOrder| {
            let same = one.at == wanted.at || Some(&one.at) == wanted.from.as_ref();
            one.model == wanted.model && same
        };
        let before = from.under(standing);
        from.check(pin, &before)?;
        let mut after = before.clone();
        after.pins.retain(|one| !replaced(one));
        let found = foreseen_pin(&after, &from.memory, &wanted);
        let Some((snapshot, number)) = found else {
            return Err(no_slice(&before, &pin.at));
        };
        if let Some(why) = obstacle(&snapshot, &number) {
            let (model, position) = (&pin.model, &pin.at.position);
            return Err(conflict(format!("{model} cannot be on {position}: {why}")));
        }
        after.pins.push(wanted);
        let plan = |world: &World| foresee(world, &from.memory);
        Ok(between(&plan(&before), &plan(&after)).with_demand_of(&self.state()))
    }
}

/// The same with another objective for a model; nothing if it is not there.
fn with_slo(world: &World, model: &str, slo: Duration) -> Option<World> {
    let mut changed = world.clone();
    let mut models = changed.models.to_vec();
    models.iter_mut().find(|known| known.name == model)?.slo = slo;
    changed.models = models.into();
    Some(changed)
}

impl Decided {
    /// The fleet under the orders of now, some of which may be younger than the last round.
    fn under(&self, standing: &StandingOrders) -> World {
        let mut world = World::clone(&self.world);
        world.pins = standing.pins.iter().map(pin_order).collect();
        world.drained = standing.drains.keys().cloned().collect();
        world
    }

    /// Whether a pin names a model and slices that there are.
    fn check(&self, pin: &orders::Pin, world: &World) -> Result<(), OrderError> {
        if !world.models.iter().any(|model| model.name == pin.model) {
            let hint = config::hint(&pin.model, world.models.iter().map(|model| &*model.name));
            return Err(OrderError::UnknownModel { model: pin.model.clone(), hint });
        }
        for slice in std::iter::once(&pin.at).chain(&pin.from) {
            let there = PinOrder { at: slice.clone(), from: None, ..pin_order(pin) };
            if foreseen_pin(world, &self.memory, &there).is_none() {
                return Err(no_slice(world, slice));
            }
        }
        Ok(())
    }
}

/// Why a slice is not one that anything can be put on.
fn no_slice(world: &World, slice: &SliceId) -> OrderError {
    let SliceId { worker, gpu, position } = slice;
    let on = world.workers.iter().find(|known| known.name == *worker);
    let found = on.and_then(|known| known.gpus.iter().find(|known| known.index == *gpu));
    match found.filter(|gpu| gpu.readable) {
        Some(found) => {
            let kind = found.kind.map_or("this GPU", |kind| kind.name.as_str());
            conflict(format!("{kind} has no slice {position}"))
        }
        None => conflict(format!("{worker} has no gpu{gpu} that anything can be put on")),
    }
}

fn conflict(why: String) -> OrderError {
    OrderError::Conflict { why }
}

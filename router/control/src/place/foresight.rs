//! What orders would lead to, and how far they are.

use mig::Position;
use policy::{
    fleet::SliceId,
    place::{self, Snapshot, obstacle},
};

use super::{
    ordered::{self, DrainPhase, DrainState, PinPhase, PinState},
    outlook::{self, Consequence},
    told::{From, Planned},
};
use crate::orders::{self, OrderError, Standing};

/// Said of an order between its coming and the next decision.
const UNSEEN: &str = "the planner has not looked yet";

impl Planned {
    /// What draining a worker would lead to; nothing before the first decision. Plans twice.
    pub fn without(&self, worker: &str, standing: &Standing) -> Option<Consequence> {
        let from = self.last.lock().from.clone()?;
        let before = from.under(standing);
        let mut after = before.clone();
        from.close(&mut after, worker);
        Some(outlook::between(&before, &after, &from.gpus))
    }

    /// What a pin would lead to, or why it cannot be. Plans twice.
    pub fn with_pin(
        &self,
        pin: &orders::Pin,
        standing: &Standing,
    ) -> Result<Consequence, OrderError> {
        let from = self.last.lock().from.clone();
        let undecided = || conflict("the planner has not decided anything yet".to_owned());
        let from = from.ok_or_else(undecided)?;
        let wanted = from.pin(pin)?;
        let replaced = |one: &place::Pin| {
            let at = (one.gpu, one.position);
            let same = at == (wanted.gpu, wanted.position) || Some(at) == wanted.from;
            one.model == wanted.model && same
        };
        let before = from.under(standing);
        let mut after = before.clone();
        after.pins.retain(|one| !replaced(one));
        if let Some(why) = obstacle(&after, &wanted) {
            let (model, position) = (&pin.model, wanted.position);
            return Err(conflict(format!("{model} cannot be on {position}: {why}")));
        }
        after.pins.push(wanted);
        Ok(outlook::between(&before, &after, &from.gpus))
    }

    /// How far a drain is.
    pub fn drain(&self, worker: &str, drain: &orders::Drain) -> DrainState {
        let known = self.last.lock().ordered.holds.get(worker).cloned();
        let holds = known.unwrap_or_else(|| vec![UNSEEN.to_owned()]);
        let state = if holds.is_empty() { DrainPhase::Drained } else { DrainPhase::Draining };
        DrainState { by: drain.by.clone(), since_ms: drain.since_ms, state, holds }
    }

    /// How far pins are.
    pub fn pins(&self, standing: &Standing) -> Vec<PinState> {
        let last = self.last.lock();
        let state = |pin: &orders::Pin| {
            let same = |one: &&PinState| one.model == pin.model && one.at == pin.at;
            let known = last.ordered.pins.iter().find(same).cloned();
            known.unwrap_or_else(|| PinState::new(pin, PinPhase::Starting, Some(UNSEEN)))
        };
        standing.pins.iter().map(state).collect()
    }
}

impl From {
    /// The fleet under the orders of now, some of which may be younger than the last decision.
    fn under(&self, standing: &Standing) -> Snapshot {
        let mut snapshot = Snapshot::clone(&self.snapshot);
        snapshot.pins = standing.pins.iter().filter_map(|pin| self.pin(pin).ok()).collect();
        for worker in standing.drains.keys() {
            self.close(&mut snapshot, worker);
        }
        snapshot
    }

    /// Nothing may be on the GPUs of a worker.
    fn close(&self, snapshot: &mut Snapshot, worker: &str) {
        for (gpu, (on, _)) in snapshot.gpus.iter_mut().zip(&*self.gpus) {
            if on == worker {
                (gpu.healthy, gpu.cuttable) = (false, false);
            }
        }
    }

    /// A pin by numbers.
    fn pin(&self, pin: &orders::Pin) -> Result<place::Pin, OrderError> {
        let mut models = self.snapshot.models.iter();
        let unknown = || OrderError::UnknownModel { model: pin.model.clone() };
        let model = models.position(|model| model.name == pin.model).ok_or_else(unknown)?;
        let (gpu, position) = self.place(&pin.at)?;
        let from = pin.from.as_ref().map(|seat| self.place(seat)).transpose()?;
        Ok(place::Pin { model, gpu, position, from, by: pin.by.clone() })
    }

    fn place(&self, seat: &SliceId) -> Result<(usize, Position), OrderError> {
        let SliceId { worker, gpu, position } = seat;
        let none = || conflict(format!("{worker} has no gpu{gpu} that anything can be put on"));
        let index = self.gpus.iter().position(|(on, index)| on == worker && index == gpu);
        let index = index.ok_or_else(none)?;
        let kind = self.snapshot.gpus[index].kind;
        let found = ordered::position(kind, position);
        let no_slice = || conflict(format!("{} has no slice {position}", kind.name));
        Ok((index, found.ok_or_else(no_slice)?))
    }
}

fn conflict(why: String) -> OrderError {
    OrderError::Conflict { why }
}

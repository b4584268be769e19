//! How far drains and pins are: by the last round at the leader, by reports at other routers.

pub mod reported;

use policy::{
    fleet::SliceId,
    round::{PinOrder, PinProgress},
};
use serde::{Deserialize, Serialize};

use crate::{
    orders::{self, StandingOrders},
    plan::Planned,
};

/// Said of an order between its coming and the next decision.
const UNSEEN: &str = "the planner has not looked yet";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainState {
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    pub state: DrainPhase,
    pub holds: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainPhase {
    Draining,
    Drained,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinState {
    /// Its model.
    pub model: String,
    #[serde(flatten)]
    pub at: SliceId,
    /// Where its model shall leave for it, until it has.
    pub from: Option<SliceId>,
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    pub state: PinPhase,
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinPhase {
    Held,
    Starting,
    Waiting,
}

impl DrainPhase {
    pub const ALL: [(&'static str, Self); 2] =
        [("draining", Self::Draining), ("drained", Self::Drained)];
}

impl PinPhase {
    pub const ALL: [(&'static str, Self); 3] =
        [("held", Self::Held), ("starting", Self::Starting), ("waiting", Self::Waiting)];
}

impl Planned {
    pub fn drain(&self, worker: &str, drain: &orders::Drain) -> DrainState {
        let known = self.last.lock().progress.holds.get(worker).cloned();
        let holds = known.unwrap_or_else(|| vec![UNSEEN.to_owned()]);
        let state = if holds.is_empty() { DrainPhase::Drained } else { DrainPhase::Draining };
        DrainState { by: drain.by.clone(), since_ms: drain.since_ms, state, holds }
    }

    pub fn pins(&self, standing: &StandingOrders) -> Vec<PinState> {
        let last = self.last.lock();
        let state = |pin: &orders::Pin| {
            let same = |one: &PinOrder| one.model == pin.model && one.at == pin.at;
            let known = last.pins.iter().position(same);
            let progress = known.and_then(|index| last.progress.pins.get(index));
            let unseen = || PinState::new(pin, PinPhase::Starting, Some(UNSEEN));
            progress.map_or_else(unseen, |progress| PinState::of(pin, progress))
        };
        standing.pins.iter().map(state).collect()
    }
}

impl PinState {
    /// A pin of which the round says how far it is.
    fn of(pin: &orders::Pin, progress: &PinProgress) -> Self {
        match progress {
            PinProgress::Held => Self::new(pin, PinPhase::Held, None),
            PinProgress::Starting { why } => Self::new(pin, PinPhase::Starting, Some(why)),
            PinProgress::Waiting { why } => Self::new(pin, PinPhase::Waiting, why.as_deref()),
        }
    }

    fn new(pin: &orders::Pin, state: PinPhase, why: Option<&str>) -> Self {
        Self {
            model: pin.model.clone(),
            at: pin.at.clone(),
            from: pin.from.clone(),
            by: pin.by.clone(),
            since_ms: pin.since_ms,
            state,
            why: why.map(ToOwned::to_owned),
        }
    }
}

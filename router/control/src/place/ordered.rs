//! What operators have ordered, as the placer sees it, and how far it is.

use std::collections::{BTreeMap, BTreeSet};

use config::Config;
use mig::{Kind, Position};
use policy::{
    fleet::SliceId,
    place::{self, Decision, Placed, Snapshot, State, obstacle},
};
use protocol::WHOLE;
use serde::{Deserialize, Serialize};

use super::{Placer, groups::Group, world::World};
use crate::{
    ledger::Slices,
    orders::{self, Orders, Standing},
};

/// How far the orders are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ordered {
    /// What still holds each drained worker.
    pub(super) holds: BTreeMap<String, Vec<String>>,
    pub(super) pins: Vec<PinState>,
}

/// A worker that an operator drains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainState {
    /// Who wants it.
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// How far it is.
    pub state: DrainPhase,
    /// What still holds it, and why.
    pub holds: Vec<String>,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrainPhase {
    /// Something is still there.
    Draining,
    /// Nothing is.
    Drained,
}

/// A replica that an operator has pinned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinState {
    /// Its model.
    pub model: String,
    /// Where it shall be.
    #[serde(flatten)]
    pub at: SliceId,
    /// Where its model shall leave for it, until it has.
    pub from: Option<SliceId>,
    /// Who wants it.
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// How far it is.
    pub state: PinPhase,
    /// Why it is no further.
    pub why: Option<String>,
}

/// How far a pin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinPhase {
    /// The replica serves there.
    Held,
    /// It is on its way there.
    Starting,
    /// It cannot be there now.
    Waiting,
}

impl DrainPhase {
    /// Every one, for counting.
    pub const ALL: [(&'static str, Self); 2] =
        [("draining", Self::Draining), ("drained", Self::Drained)];
}

impl PinPhase {
    /// Every one, for counting.
    pub const ALL: [(&'static str, Self); 3] =
        [("held", Self::Held), ("starting", Self::Starting), ("waiting", Self::Waiting)];
}

impl PinState {
    /// A pin and how far it is.
    pub(crate) fn new(pin: &orders::Pin, state: PinPhase, why: Option<&str>) -> Self {
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

/// What a position is called on a GPU of that kind.
pub(super) fn position(kind: &'static Kind, text: &str) -> Option<Position> {
    if text == WHOLE { Some(kind.whole()) } else { kind.position(text).ok() }
}

fn place_of(world: &World, seat: &SliceId) -> Option<(usize, Position)> {
    let gpu = world.site(&seat.worker, seat.gpu)?;
    Some((gpu, position(world.sites[gpu].kind, &seat.position)?))
}

/// A pin by numbers; nothing if its model or its GPU is not there.
fn by_number(pin: &orders::Pin, world: &World, config: &Config) -> Option<place::Pin> {
    let model = config.models.iter().position(|model| model.name == pin.model)?;
    let (gpu, position) = place_of(world, &pin.at)?;
    let from = pin.from.as_ref().and_then(|seat| place_of(world, seat));
    Some(place::Pin { model, gpu, position, from, by: pin.by.clone() })
}

/// The pins of models and GPUs that are there.
pub(super) fn pins(standing: &Standing, world: &World, config: &Config) -> Vec<place::Pin> {
    standing.pins.iter().filter_map(|pin| by_number(pin, world, config)).collect()
}

/// Pins whose models have left the place they were to leave.
pub(super) fn left(
    standing: &Standing,
    (world, groups): (&World, &BTreeMap<u64, Group>),
    config: &Config,
) -> Vec<orders::Pin> {
    let still_there = |pin: &orders::Pin| {
        let Some(place::Pin { model, from: Some(from), .. }) = by_number(pin, world, config) else {
            // A worker that is away may come back with it.
            return true;
        };
        groups.values().any(|group| {
            let at = (group.site, world.sites[group.site].slices[group.slice].position);
            group.replica.model == Some(model) && at == from
        })
    };
    let moved = standing.pins.iter().filter(|pin| pin.from.is_some());
    moved.filter(|pin| !still_there(pin)).cloned().collect()
}

impl Placer {
    /// How far the orders are, after a decision.
    pub(super) fn ordered(
        &self,
        standing: &Standing,
        (world, groups): (&World, &BTreeMap<u64, Group>),
        (config, snapshot, decision): (&Config, &Snapshot, &Decision),
        owners: &Slices,
    ) -> Ordered {
        let holds = standing.drains.keys().map(|worker| {
            let mut holds = self.replicas_on(worker);
            holds.extend(jobs_on(worker, world, owners));
            (worker.clone(), holds)
        });
        let pin = |pin: &orders::Pin| {
            let Some(wanted) = by_number(pin, world, config) else {
                let why = "its worker is away, or its model is not configured";
                return PinState::new(pin, PinPhase::Waiting, Some(why));
            };
            let is_it = |one: &&Placed| {
                let at = (one.model, one.gpu, one.position);
                one.pinned && at == (wanted.model, wanted.gpu, wanted.position)
            };
            let Some(placed) = decision.target.placed.iter().find(is_it) else {
                let why = obstacle(snapshot, &wanted);
                return PinState::new(pin, PinPhase::Waiting, why.as_deref());
            };
            let group = placed.replica.and_then(|id| groups.get(&id));
            match group.map(|group| group.replica.state) {
                Some(State::Ready) => PinState::new(pin, PinPhase::Held, None),
                Some(State::Starting | State::Draining | State::Failed) => {
                    PinState::new(pin, PinPhase::Starting, Some("it is being loaded"))
                }
                None => {
                    let why = "it is loaded once what is in its way has gone";
                    PinState::new(pin, PinPhase::Starting, Some(why))
                }
            }
        };
        Ordered { holds: holds.collect(), pins: standing.pins.iter().map(pin).collect() }
    }

    /// The replicas that are still on a drained worker, and why.
    fn replicas_on(&self, worker: &str) -> Vec<String> {
        let Some(assignment) = self.assignments.get(worker) else { return Vec::new() };
        let told = assignment.replicas.iter().map(|one| {
            let why = if one.leaving {
                "finishes its last batches"
            } else {
                "serves until its successor is ready"
            };
            format!("{} on gpu{} {} {why}", one.model, one.gpu, one.position)
        });
        // The processes of one replica are one line.
        told.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// The jobs that still have slices of a drained worker.
fn jobs_on(worker: &str, world: &World, owners: &Slices) -> Vec<String> {
    let mut told = Vec::new();
    for site in world.sites.iter().filter(|site| site.key.0 == worker) {
        for spot in site.slices.iter().filter(|spot| spot.lent) {
            let (gpu, position) = (site.key.1, &spot.text);
            let job = owners.job(worker, gpu, position);
            let job = job.map_or_else(|| "a job".to_owned(), |job| format!("job {job}"));
            told.push(format!("{job} on gpu{gpu} {position} has its notice to stop"));
        }
    }
    told
}

/// Notes which places were left. Waits for the disk, elsewhere.
pub(super) async fn note_left(orders: &std::sync::Arc<Orders>, left: Vec<orders::Pin>) {
    if left.is_empty() {
        return;
    }
    let orders = std::sync::Arc::clone(orders);
    let noted = tokio::task::spawn_blocking(move || orders.left(&left)).await;
    if let Ok(Err(error)) = noted {
        tracing::warn!(%error, "a finished move could not be written down; it is tried again");
    }
}

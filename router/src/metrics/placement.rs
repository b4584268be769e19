//! The metrics of placement, and their families.

use super::{
    Kind, Spec, Unit,
    page::{count, number},
    spec,
};
use crate::{progress::PinPhase, state::State};

pub(super) const DEMAND: Spec = spec(
    "sluice_placement_demand_requests_per_second",
    Unit::Count,
    Kind::Gauge,
    &["model"],
    "Rows a second that a model is provided for, by the forecast.",
);
pub(super) const CAPACITY: Spec = spec(
    "sluice_placement_capacity_requests_per_second",
    Unit::Count,
    Kind::Gauge,
    &["model"],
    "Rows a second that a model's replicas serve within the objective, once that is known.",
);
pub(super) const GPUS: Spec = spec(
    "sluice_placement_gpus",
    Unit::Count,
    Kind::Gauge,
    &[],
    "GPUs that have or shall have a replica.",
);
pub(super) const MOVES: Spec = spec(
    "sluice_placement_moves_total",
    Unit::Count,
    Kind::Counter,
    &["reason"],
    "Replicas loaded (start) and let go (stop), and GPUs cut otherwise (cut).",
);
pub(super) const REFUSED: Spec = spec(
    "sluice_placement_refusals",
    Unit::Count,
    Kind::Gauge,
    &[],
    "What the placer would do and cannot.",
);
pub(super) const PINS: Spec = spec(
    "sluice_placement_pins",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Replicas that operators have pinned: held, starting, or waiting for what cannot be now.",
);
pub(super) const INTERFERENCE: Spec = spec(
    "sluice_interference_ratio",
    Unit::Ratio,
    Kind::Gauge,
    &["model", "slice"],
    "How many times as long as in its warm-up a batch takes beside its neighbours.",
);
pub(super) const ERROR: Spec = spec(
    "sluice_interference_error_ratio",
    Unit::Ratio,
    Kind::Gauge,
    &[],
    "The median error of predicted slowdowns, as a part of what was seen.",
);

pub(super) fn record(state: &State) {
    let plan = &state.plan;
    for one in &plan.models {
        number(&DEMAND, [&one.model], one.demand_rps);
        if let Some(capacity) = one.capacity_rps {
            number(&CAPACITY, [&one.model], capacity);
        }
    }
    number(&GPUS, [], plan.gpus_used as f64);
    let moved = plan.moved;
    for (reason, moves) in [("start", moved.start), ("stop", moved.stop), ("cut", moved.cut)] {
        count(&MOVES, [reason], moves);
    }
    number(&REFUSED, [], plan.refusals.len() as f64);
    for (name, wanted) in PinPhase::ALL {
        let pins = state.pins.iter().filter(|pin| pin.state == wanted).count();
        number(&PINS, [name], pins as f64);
    }
    for model in &state.models {
        for (slice, slowdown) in model.dispatch.slowdowns_by_slice() {
            number(&INTERFERENCE, [&model.name, slice], slowdown);
        }
    }
    number(&ERROR, [], plan.interference_error.unwrap_or(0.0));
}

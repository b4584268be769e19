//! The metrics of placement, and their families.

use super::{
    Kind, Spec, Unit,
    page::{count, number},
};
use crate::{progress::PinPhase, state::State};

pub(super) const DEMAND: Spec = Spec::new(
    "sluice_placement_demand_requests_per_second",
    Unit::Count,
    Kind::Gauge,
    &["model"],
    "Forecast demand that placement provides for, in rows/s.",
);
pub(super) const CAPACITY: Spec = Spec::new(
    "sluice_placement_capacity_requests_per_second",
    Unit::Count,
    Kind::Gauge,
    &["model"],
    "Rows/s that the model's replicas serve within the objective, no more than was carried end to end; absent until that was measured.",
);
pub(super) const GPUS: Spec = Spec::new(
    "sluice_placement_gpus",
    Unit::Count,
    Kind::Gauge,
    &[],
    "GPUs that have, or will have, a replica.",
);
pub(super) const MOVES: Spec = Spec::new(
    "sluice_placement_moves_total",
    Unit::Count,
    Kind::Counter,
    &["reason"],
    "Changes of placement: replicas started (start) and stopped (stop), GPUs reshaped (cut).",
);
pub(super) const REFUSED: Spec = Spec::new(
    "sluice_placement_refusals",
    Unit::Count,
    Kind::Gauge,
    &[],
    "Unplaced replicas; /admin/v1/plan says why.",
);
pub(super) const PINS: Spec = Spec::new(
    "sluice_placement_pins",
    Unit::Count,
    Kind::Gauge,
    &["state"],
    "Replicas that operators pinned, by state: held, starting or waiting.",
);
pub(super) const INTERFERENCE: Spec = Spec::new(
    "sluice_interference_ratio",
    Unit::Ratio,
    Kind::Gauge,
    &["model", "slice"],
    "Slowdown of a batch beside its neighbors, compared with its warm-up.",
);
pub(super) const ERROR: Spec = Spec::new(
    "sluice_interference_error_ratio",
    Unit::Ratio,
    Kind::Gauge,
    &[],
    "Median relative error of predicted slowdowns.",
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

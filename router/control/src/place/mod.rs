//! What was planned, for people and for what-ifs.

pub mod afar;
mod fits;
mod foresight;
mod ordered;
mod outlook;
pub(crate) mod spec;
mod told;

pub use self::{
    fits::fits,
    ordered::{DrainPhase, DrainState, PinPhase, PinState},
    outlook::{Affected, Consequence, Intended, Outlook, Prospect, Provided},
    told::{Move, Moved, PlanState, Planned, PlannedModel, PlannedReplica},
};

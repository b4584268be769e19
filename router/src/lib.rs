//! The router: composes the data plane of package `serve` with the control plane.
//!
//! [`compose`] starts and stops it, [`admin`] is its listener for operators, [`state`] is all they can
//! see at one moment, [`reload`] owns the configuration in force, and [`plane`] is how the control
//! plane of package `control` asks the data plane.

pub mod admin;
mod bind;
mod carried;
pub mod compose;
pub mod events;
pub mod handover;
pub mod metrics;
mod observe;
pub mod plane;
mod ready;
pub mod registry;
pub mod reload;
mod service;
pub mod state;
mod steer;

pub use bind::{BindError, Holder, Port, Why};
pub use control::{
    election, fleet, jobs, leader, learned, model_spec, office, orders, plan, progress, records,
    replay, round, takeover, whatif,
};

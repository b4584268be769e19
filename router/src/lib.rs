//! The router: composes the data plane of package `serve` with the control plane.
//!
//! [`compose`] starts and stops it, [`admin`] is its listener for operators, [`fleet`] hears the
//! workers, [`place`] decides what runs on them, [`lend`] gives idle slices to [`jobs`], [`leader`]
//! says whether this router does either, and [`plane`] is how they ask the data plane.

pub mod admin;
pub mod compose;
pub mod control;
pub mod dataplane;
pub mod election;
pub mod fleet;
pub mod jobs;
pub mod leader;
pub mod learned;
pub mod ledger;
pub mod lend;
pub mod metrics;
pub mod office;
pub mod orders;
pub mod place;
pub mod plane;
pub mod records;
pub mod registry;
pub mod reload;
pub mod replay;
pub mod state;
mod steer;
pub mod takeover;
pub mod wallclock;

//! The control plane: what each worker is asked to run, and why.
//!
//! [`fleet`] hears the workers and tells them, [`place`] puts replicas on slices, [`lend`] gives idle
//! slices to [`jobs`], [`orders`] holds what operators want, and [`leader`] says whether this router
//! may do any of it. Of the data plane it knows the trait in [`plane`] only.

pub mod clock;
mod control;
pub mod election;
pub mod fleet;
pub mod jobs;
pub mod leader;
pub mod learned;
pub mod ledger;
pub mod lend;
pub mod office;
pub mod orders;
pub mod place;
pub mod plane;
pub mod records;
pub mod replay;
pub mod takeover;

pub use self::control::{Control, Stored};

//! The control plane: what each worker is asked to run, and why.
//!
//! [`fleet`] hears the workers and tells them, [`round`] puts replicas on slices and lends idle slices
//! to [`jobs`], [`orders`] holds what operators want, and [`leader`] says whether this router may do
//! any of it. Of the data plane it knows the trait in [`plane`] only.

pub mod clock;
mod control;
pub mod election;
pub mod fleet;
pub mod jobs;
pub mod leader;
pub mod learned;
pub mod office;
pub mod orders;
mod pause;
pub mod plan;
pub mod plane;
pub mod progress;
pub mod records;
pub mod replay;
pub mod round;
pub mod takeover;
pub mod whatif;
mod world;

pub use self::{
    control::{Control, Stored},
    pause::Pause,
    world::spec::of as model_spec,
};

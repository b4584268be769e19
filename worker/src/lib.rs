//! Slices of GPUs at work: the executor that owns one, and the worker that keeps executors alive.
//!
//! CUDA shows a process one MIG device, so every slice has a process of its own. The worker starts
//! it, orders models into it over its stdin, hears of them on its stdout, and starts it again when
//! it dies. Batches do not pass through the worker: the router sends them to the executor itself.
//! [`gpu`] reads and cuts the GPUs the slices are of.

mod clock;
pub mod engine;
mod executor;
pub mod gpu;
mod memory;
mod signature;
mod supervise;

pub use engine::server::guard::run_guard;
pub use executor::{ExecutorArgs, run_executor};
pub use protocol::{ModelSpec, ReadyReplica, ReplicaReport, ReplicaState, Report};
pub use signature::{Refusal, Signature, Spec};
pub use supervise::{Launch, Placement, PlanError, SlicePlan, Worker, start};

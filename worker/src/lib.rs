//! Slices of GPUs at work: the executors that serve them, and the worker that keeps them.
//!
//! CUDA shows a process one MIG device, so every slice has a process of its own, or several: each
//! is a lane, one stream of execution. The worker ([`Host`]) makes a machine's GPUs, lanes and
//! models as the router desires them, and reports what is. Executors outlive it for a while, so that
//! the next worker finds them at work. Batches do not pass through it: the router sends them to the
//! executor itself. [`gpu`] reads and cuts the GPUs the slices are of.

mod child;
mod clock;
pub mod cores;
pub mod engine;
mod executor;
mod executor_paths;
pub mod gpu;
mod host;
mod inspect;
mod join;
mod lines;
mod memory;
mod onnxruntime;
mod rank;
mod reconcile;
mod said;
mod signature;

pub use engine::{server::guard::run_guard, try_onnxruntime};
pub use executor::{ExecutorArgs, run_executor};
pub use host::{Changes, GpuSettings, Host, HostError, Launch, Lending, Open};
pub use inspect::{Inspected, Loads, inspect, run_inspect};
pub use join::{Door, DoorTls, Parted, converse, join};
pub use onnxruntime::OnnxRuntime;
pub use rank::{Limits, User, run_rank, user_named};
pub use signature::{Refusal, Signature, Spec};
pub use tls::Identity;

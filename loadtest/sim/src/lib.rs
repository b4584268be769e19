//! The whole fleet in virtual time, on the router's own decisions.
//!
//! Replicas are latency curves or measured models on simulated GPUs, arrivals come from seeded
//! generators or traces, and a simulated minute takes milliseconds. The machine under test is
//! [`policy::dispatch::Dispatch`] itself: there is no second copy of any decision here.

mod balance;
pub mod claims;
pub mod clairvoyant;
pub mod colocation;
pub mod contest;
pub mod control;
pub mod curve;
pub mod fleet;
pub mod follow;
pub mod jobs;
pub mod page;
pub mod place;
pub mod problems;
pub mod rates;
pub mod report;
pub mod scenario;
pub mod shrink;
pub mod simulate;
mod slots;
pub mod start;
pub mod study;
pub mod summary;
pub mod table;
pub mod tournament;
pub mod training;
pub mod world;

pub use simgpu::random;

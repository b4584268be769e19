//! One model and its replicas in virtual time, on the router's own decisions.
//!
//! Replicas are latency curves, arrivals come from a seeded generator, and a simulated minute takes
//! milliseconds. The machine under test is [`policy::dispatch::Dispatch`] itself: there is no second
//! copy of any decision here.

pub mod curve;
pub mod report;
pub mod run;
pub mod scenario;
pub mod tournament;

pub use simgpu::random;

//! GPUs, and cores as if they were one: what exists, how it fares, and how it is cut.
//!
//! Nothing here remembers the driver's handles: one may die with its slice and be given to another,
//! so everything is found anew by UUID or id, and after acting the GPU is read again and the truth
//! reported. A slice can be destroyed only by someone who holds the proof that nothing uses it,
//! which only a look at its processes and [leases](Lease) can make.

mod cores;
mod error;
mod lease;
pub mod nvml;
pub mod simulated;
mod steps;
mod survey;

use std::time::Duration;

use mig::Geometry;

use self::simulated::Work;
pub use cores::{CoreDevice, CoreSetup};
pub use error::{GpuError, User};
pub use lease::Lease;
pub use survey::{
    Compute, Disagreement, Ecc, Memory, Mode, Process, Room, Sample, Slice, Survey, Xid,
};

/// One GPU.
///
/// Calls block, a reshape for seconds: make them where that is allowed.
pub trait Gpu: Send {
    fn survey(&self) -> Result<Survey, GpuError>;

    /// How the GPU fares now; what it cannot say is absent.
    fn sample(&self) -> Result<Sample, GpuError>;

    /// Marks the slice with this UUID as used until the lease is dropped, so that no reshape
    /// destroys it. Borrowing keeps a lease from being taken during a reshape.
    fn lease(&self, uuid: &str) -> Result<Lease, GpuError>;

    /// Cuts the GPU as wanted, touching only slices that are to vanish or appear.
    ///
    /// If one that is to vanish is used, nothing is done at all. A failure half way leaves what it
    /// leaves, and [`Reshaped::found`] says what that is.
    fn reshape(&mut self, wanted: &Geometry) -> Reshaped;

    /// The Xid errors since the last call, waiting up to `wait` for the first.
    fn xids(&mut self, wait: Duration) -> Result<Vec<Xid>, GpuError>;

    /// Takes note of who is busy with what, and says how much slower than alone each slice runs
    /// for it, by UUID. Slices that are not in `works` are idle. On a real GPU they feel it.
    fn feel(&self, _works: &[Work]) -> Result<Vec<(String, f64)>, GpuError> {
        Ok(Vec::new())
    }
}

#[derive(Debug)]
pub struct Reshaped {
    /// Whether the GPU is now cut as wanted, or what stopped it.
    pub outcome: Result<(), GpuError>,
    /// What exists after it, read anew whatever the outcome.
    pub found: Result<Survey, GpuError>,
}

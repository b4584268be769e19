//! A GPU's physics without a GPU: how long batches take, what slices do to each other, what a
//! reshape costs.
//!
//! Calibrated on published measurements, so that what is learned here holds on hardware: batch
//! times from measured rows ([`Measured`]), what slices share from MLPerf runs under MIG
//! ([`share`]), training speeds from MISO and Gavel ([`training`]). What nobody has published is a
//! parameter with a stated default ([`Delays`]). The router's policies never see any of this: they
//! learn, as they would on hardware.

mod board;
mod device;
mod measured;
pub mod random;
pub mod share;
mod speed;
pub mod training;

pub use board::{Board, board};
pub use device::{Delays, Device, Fault, Recut, total_mib};
pub use measured::{Measured, Models};
pub use share::{Busy, Load, Shared};
pub use speed::Speed;

use mig::{MigError, Position};

/// Why the simulated GPU cannot do or say something.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// Not a GPU, a profile or a position.
    #[error(transparent)]
    Mig(#[from] MigError),
    /// No such model was measured.
    #[error("no measurements of a model named {model:?}; there are {known}")]
    UnknownModel {
        /// As asked for.
        model: String,
        /// Those there are.
        known: String,
    },
    /// A model without a single measurement.
    #[error("a model without measurements has no speed")]
    Unmeasured,
    /// A batch without rows.
    #[error("a batch has at least 1 row")]
    EmptyBatch,
    /// A replica without processes.
    #[error("a slice is shared by at least 1 process")]
    NoProcess,
    /// The GPU is not cut so.
    #[error("there is no slice {position}")]
    NoSlice {
        /// As asked for.
        position: Position,
    },
    /// The slice has too little memory left.
    #[error("{position} has {free_mib} MiB free, {needed_mib} MiB are needed")]
    OutOfMemory {
        /// The slice.
        position: Position,
        /// What is needed.
        needed_mib: u64,
        /// What is left.
        free_mib: u64,
    },
    /// A slice that would vanish is in use.
    #[error("{position} is in use")]
    InUse {
        /// The slice.
        position: Position,
    },
    /// A creation failed, as it was told to.
    #[error("{position} could not be created")]
    CreateFailed {
        /// The slice.
        position: Position,
    },
    /// The GPU fell off the bus.
    #[error("the GPU is lost")]
    Lost,
}

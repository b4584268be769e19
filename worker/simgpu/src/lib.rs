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

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    #[error(transparent)]
    Mig(#[from] MigError),
    #[error("no measurements of a model named {model:?}; there are {known}")]
    UnknownModel { model: String, known: String },
    #[error("a model without measurements has no speed")]
    Unmeasured,
    #[error("a batch has at least 1 row")]
    EmptyBatch,
    #[error("a slice is shared by at least 1 process")]
    NoProcess,
    #[error("there is no slice {position}")]
    NoSlice { position: Position },
    #[error("{position} has {free_mib} MiB free, {needed_mib} MiB are needed")]
    OutOfMemory { position: Position, needed_mib: u64, free_mib: u64 },
    #[error("{position} is in use")]
    InUse { position: Position },
    #[error("{position} could not be created")]
    CreateFailed { position: Position },
    #[error("the GPU is lost")]
    Lost,
}

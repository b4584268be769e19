//! Why a GPU did not do or say something.

use std::{fmt, path::PathBuf};

use mig::Position;

/// Why a GPU did not do or say something. Some are ordinary states of a machine: see
/// [`GpuError::is_absence`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    #[error("no NVML at {}: {reason}", path.display())]
    LibraryMissing { path: PathBuf, reason: String },
    #[error("NVML at {} found no driver (code {code})", path.display())]
    DriverMissing { path: PathBuf, code: u32 },
    #[error("no GPU {wanted}; there are {count}")]
    NoSuchGpu { wanted: u32, count: u32 },
    #[error("no slice {uuid}")]
    NoSuchSlice { uuid: String },
    #[error("MIG is off on {gpu}; turn it on with nvidia-smi -mig 1 while the GPU is idle")]
    MigOff { gpu: String },
    #[error("{gpu} does not support MIG")]
    MigUnsupported { gpu: String },
    #[error("{gpu} ({name}) is not in the MIG table")]
    UnknownKind { gpu: String, name: String },
    #[error("{gpu} is a {found}, the geometry is for {wanted}")]
    WrongKind { gpu: String, found: &'static str, wanted: &'static str },
    #[error("the driver does not offer {position}")]
    NotOffered { position: Position },
    #[error("{slice} is in use: {by}")]
    InUse { slice: String, by: User },
    #[error("{call}: insufficient resources")]
    InsufficientResources { call: &'static str },
    /// It needs root, or the capability mig/config.
    #[error("{call}: no permission; run as root or grant the capability mig/config")]
    NoPermission { call: &'static str },
    /// What was asked about vanished between looking and asking.
    #[error("{call}: it no longer exists")]
    Stale { call: &'static str },
    /// A slice has a compute instance that we are not shown, as in a container that has not all
    /// MIG devices, so nothing can be said of its use.
    #[error("GPU instance {instance} has a compute instance without a visible MIG device")]
    Unseen { instance: u32 },
    #[error("{call}: not supported")]
    NotSupported { call: &'static str },
    #[error("{call}: the GPU is lost")]
    Lost { call: &'static str },
    #[error("{call}: the GPU must be reset")]
    ResetRequired { call: &'static str },
    #[error("{reason}")]
    Simulated { reason: String },
    /// How cores are cut cannot be read or written.
    #[error("{reason}")]
    Kept { reason: String },
    #[error("{call}: code {code}")]
    Other { call: &'static str, code: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    Lease,
    Processes(Vec<u32>),
    /// Someone only the driver knows.
    Unknown,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease => f.write_str("it is leased"),
            Self::Processes(pids) => {
                let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                write!(f, "by process {}", pids.join(", "))
            }
            Self::Unknown => f.write_str("the driver says so"),
        }
    }
}

impl GpuError {
    /// Whether it means that this machine has no such thing, rather than that something failed.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::LibraryMissing { .. }
                | Self::DriverMissing { .. }
                | Self::NoSuchGpu { .. }
                | Self::MigOff { .. }
                | Self::MigUnsupported { .. }
        )
    }

    /// Whether it means that an answer is not to be had, rather than that it is bad.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::NotSupported { .. } | Self::NoPermission { .. })
    }
}

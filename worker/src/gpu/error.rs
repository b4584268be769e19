//! Why a GPU did not do or say something.

use std::{fmt, path::PathBuf};

use mig::Position;

/// Why a GPU did not do or say something. Some are ordinary states of a machine: see
/// [`GpuError::is_absence`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// The driver's library cannot be loaded.
    #[error("no NVML at {}: {reason}", path.display())]
    LibraryMissing {
        /// Where it was looked for.
        path: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// The library is there and its driver is not.
    #[error("NVML at {} found no driver (code {code})", path.display())]
    DriverMissing {
        /// The library.
        path: PathBuf,
        /// What it returned.
        code: u32,
    },
    /// There is no such GPU.
    #[error("no GPU {wanted}; there are {count}")]
    NoSuchGpu {
        /// The index asked for.
        wanted: u32,
        /// How many there are.
        count: u32,
    },
    /// There is no such slice.
    #[error("no slice {uuid}")]
    NoSuchSlice {
        /// The UUID asked for.
        uuid: String,
    },
    /// The GPU could be cut, but MIG is off.
    #[error("MIG is off on {gpu}; turn it on with nvidia-smi -mig 1 while the GPU is idle")]
    MigOff {
        /// Its UUID.
        gpu: String,
    },
    /// The GPU cannot be cut.
    #[error("{gpu} does not support MIG")]
    MigUnsupported {
        /// Its UUID.
        gpu: String,
    },
    /// The table does not know the GPU, so its geometries are not known.
    #[error("{gpu} ({name}) is not in the MIG table")]
    UnknownKind {
        /// Its UUID.
        gpu: String,
        /// Its name.
        name: String,
    },
    /// The geometry is that of another kind of GPU.
    #[error("{gpu} is a {found}, the geometry is for {wanted}")]
    WrongKind {
        /// Its UUID.
        gpu: String,
        /// What it is.
        found: &'static str,
        /// What the geometry is for.
        wanted: &'static str,
    },
    /// The table has the position, the driver does not.
    #[error("the driver does not offer {position}")]
    NotOffered {
        /// The position.
        position: Position,
    },
    /// A slice that would be destroyed is used.
    #[error("{slice} is in use: {by}")]
    InUse {
        /// The slice.
        slice: String,
        /// By whom.
        by: User,
    },
    /// There is no room for the instance.
    #[error("{call}: insufficient resources")]
    InsufficientResources {
        /// The function that said so.
        call: &'static str,
    },
    /// It needs root, or the capability mig/config.
    #[error("{call}: no permission; run as root or grant the capability mig/config")]
    NoPermission {
        /// The function that said so.
        call: &'static str,
    },
    /// What was asked about vanished between looking and asking.
    #[error("{call}: it exists no more")]
    Stale {
        /// The function that said so.
        call: &'static str,
    },
    /// A slice has a compute instance that we are not shown, as in a container that has not all
    /// MIG devices, so nothing can be said of its use.
    #[error("GPU instance {instance} has a compute instance without a visible MIG device")]
    Unseen {
        /// Its id.
        instance: u32,
    },
    /// The driver or the GPU cannot do it.
    #[error("{call}: not supported")]
    NotSupported {
        /// The function that said so.
        call: &'static str,
    },
    /// The GPU fell off the bus.
    #[error("{call}: the GPU is lost")]
    Lost {
        /// The function that said so.
        call: &'static str,
    },
    /// The GPU works only after a reset.
    #[error("{call}: the GPU must be reset")]
    ResetRequired {
        /// The function that said so.
        call: &'static str,
    },
    /// A simulated GPU cannot be what it was asked to be.
    #[error("{reason}")]
    Simulated {
        /// Why.
        reason: String,
    },
    /// Anything else.
    #[error("{call}: code {code}")]
    Other {
        /// The function that said so.
        call: &'static str,
        /// What it returned.
        code: u32,
    },
}

/// Who uses a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// One of ours, by a lease.
    Lease,
    /// These processes.
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

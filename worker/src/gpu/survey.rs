//! What a GPU says of itself. What it does not say is absent, never zero.

use mig::{Geometry, Kind, Position};

/// What exists on one GPU.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The GPU's UUID.
    pub uuid: String,
    /// Its name as a product.
    pub name: String,
    /// What it is in the MIG table, if it is there.
    pub kind: Option<&'static Kind>,
    /// Whether it is cut.
    pub mode: Mode,
    /// Whether MIG will be switched by the next reset.
    pub reset_pending: bool,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Its slices, by start where that is known; one, the whole GPU, if it is not cut.
    pub slices: Vec<Slice>,
    /// Whether the driver shows us where slices are, without which they cannot be changed.
    pub privileged: bool,
    /// The positions that both the driver and the MIG table have.
    pub offered: Vec<Position>,
    /// Where the driver and the MIG table differ; positions in dispute are not offered.
    pub disagreements: Vec<Disagreement>,
    /// How many slices of each profile there is room for.
    pub room: Vec<Room>,
}

impl Survey {
    /// How the GPU is cut, if it is and every slice is of the MIG table.
    pub fn geometry(&self) -> Option<Geometry> {
        if self.mode != Mode::On {
            return None;
        }
        let positions = self.slices.iter().map(|slice| slice.position).collect::<Option<_>>()?;
        Geometry::new(self.kind?, positions).ok()
    }
}

/// Whether a GPU is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It cannot be.
    Unsupported,
    /// It is not.
    Off,
    /// It is.
    On,
}

/// A part of a GPU that can be used by itself, or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its profile; the name of the GPU if it is all of it.
    pub profile: String,
    /// Where it is. Absent if it is a whole GPU, not of the MIG table, or not shown to us.
    pub position: Option<Position>,
    /// Its GPU instance. Absent if it is a whole GPU.
    pub gpu_instance: Option<u32>,
    /// Its compute instances. One is usual; with none it exists but cannot be used.
    pub compute: Vec<Compute>,
}

impl Slice {
    /// What a process must be shown to use all of it; absent unless it is in one piece.
    pub fn usable(&self) -> Option<&Compute> {
        match self.compute.as_slice() {
            [one] if one.whole => Some(one),
            _ => None,
        }
    }
}

/// A compute instance: what CUDA calls a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compute {
    /// Its UUID, for `CUDA_VISIBLE_DEVICES`.
    pub uuid: String,
    /// Its id within its GPU instance. Absent if it is a whole GPU.
    pub id: Option<u32>,
    /// Whether it has all of its slice.
    pub whole: bool,
    /// Its memory.
    pub memory: Option<Memory>,
    /// The processes that use it.
    pub processes: Option<Vec<Process>>,
}

/// Memory of a GPU or a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All there is.
    pub total_bytes: u64,
    /// What is taken.
    pub used_bytes: u64,
}

/// A process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// What it takes.
    pub memory_bytes: Option<u64>,
}

/// How a GPU fares. Power and clock are those of the whole GPU: slices have none of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Power drawn.
    pub power_milliwatts: Option<u32>,
    /// Clock of the multiprocessors.
    pub clock_mhz: Option<u32>,
    /// Temperature of the chip.
    pub temperature_celsius: Option<u32>,
    /// Errors of memory. Absent if it does not check.
    pub ecc: Option<Ecc>,
}

/// Errors of memory since the driver was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecc {
    /// Those that hurt nobody.
    pub corrected: u64,
    /// Those that lost data.
    pub uncorrected: u64,
}

/// An error the driver reports as an Xid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// Its number in NVIDIA's list.
    pub code: u64,
    /// The GPU instance it struck, if one alone.
    pub gpu_instance: Option<u32>,
}

/// How many slices of a profile there is room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The profile.
    pub profile: String,
    /// How many more of it could be made, if no other is.
    pub count: u32,
}

/// A difference between the driver and the MIG table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// Only the table has the profile: the driver is old, or the table is wrong.
    #[error("the driver has no profile {profile}")]
    Missing {
        /// The profile.
        profile: &'static str,
    },
    /// The profile has another size.
    #[error(
        "{profile} takes {driver} (compute, memory) slices by the driver, {table} by the table",
        driver = format_args!("{driver:?}"),
        table = format_args!("{table:?}")
    )]
    Size {
        /// The profile.
        profile: &'static str,
        /// Compute and memory slices by the driver.
        driver: (u32, u32),
        /// The same by the table.
        table: (u32, u32),
    },
    /// The profile starts elsewhere.
    #[error("{profile} starts at {driver:?} by the driver, {table:?} by the table")]
    Starts {
        /// The profile.
        profile: &'static str,
        /// By the driver.
        driver: Vec<u32>,
        /// By the table.
        table: Vec<u32>,
    },
}

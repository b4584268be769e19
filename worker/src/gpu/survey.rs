//! What a GPU says of itself. What it does not say is absent, never zero.

use mig::{Geometry, Kind, Position};

#[derive(Clone, Debug)]
pub struct Survey {
    pub uuid: String,
    pub name: String,
    pub kind: Option<&'static Kind>,
    pub mode: Mode,
    /// Whether MIG will be switched by the next reset.
    pub reset_pending: bool,
    pub memory: Option<Memory>,
    /// Its slices, by start where that is known; one, the whole GPU, if it is not cut.
    pub slices: Vec<Slice>,
    /// Whether the driver shows us where slices are, without which they cannot be changed.
    pub privileged: bool,
    pub offered: Vec<Position>,
    /// Where the driver and the MIG table differ; positions in dispute are not offered.
    pub disagreements: Vec<Disagreement>,
    pub room: Vec<Room>,
}

impl Survey {
    pub fn geometry(&self) -> Option<Geometry> {
        if self.mode != Mode::On {
            return None;
        }
        let positions = self.slices.iter().map(|slice| slice.position).collect::<Option<_>>()?;
        Geometry::new(self.kind?, positions).ok()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Unsupported,
    Off,
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
    pub memory: Option<Memory>,
    pub processes: Option<Vec<Process>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub total_bytes: u64,
    pub used_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub memory_bytes: Option<u64>,
}

/// How a GPU fares. Power and clock are those of the whole GPU: slices have none of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub power_milliwatts: Option<u32>,
    pub clock_mhz: Option<u32>,
    pub temperature_celsius: Option<u32>,
    /// Errors of memory. Absent if it does not check.
    pub ecc: Option<Ecc>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecc {
    /// Those that hurt nobody.
    pub corrected: u64,
    /// Those that lost data.
    pub uncorrected: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    pub code: u64,
    /// The GPU instance it struck, if one alone.
    pub gpu_instance: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub profile: String,
    /// How many more of it could be made, if no other is.
    pub count: u32,
}

/// A difference between the driver and the MIG table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// Only the table has the profile: the driver is old, or the table is wrong.
    #[error("the driver has no profile {profile}")]
    Missing { profile: &'static str },
    #[error(
        "{profile} takes {driver} (compute, memory) slices by the driver, {table} by the table",
        driver = format_args!("{driver:?}"),
        table = format_args!("{table:?}")
    )]
    Size {
        profile: &'static str,
        /// Compute and memory slices by the driver.
        driver: (u32, u32),
        /// The same by the table.
        table: (u32, u32),
    },
    #[error("{profile} starts at {driver:?} by the driver, {table:?} by the table")]
    Starts { profile: &'static str, driver: Vec<u32>, table: Vec<u32> },
}

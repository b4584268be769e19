//! One GPU of this machine, as checked.

/// One GPU of this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Which GPU.
    pub gpu: Gpu,
    /// Its slices, in the order of the file; at least one.
    pub slices: Vec<Slice>,
}

/// Where a GPU comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// A model of one, from the MIG table.
    Simulated {
        /// Such as `A100-80GB`.
        kind: String,
    },
}

impl Gpu {
    /// Such as `A100-80GB`.
    pub fn kind(&self) -> &str {
        match self {
            Self::Simulated { kind } => kind,
        }
    }
}

/// One slice of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Such as `3g.40gb@4`.
    pub position: String,
    /// Such as `3g.40gb`.
    pub profile: String,
    /// Memory a replica can use there.
    pub memory_mib: u64,
}

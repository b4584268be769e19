//! MIG: which slices a GPU can be cut into, and which the cores of a machine.
//!
//! The tables are facts about hardware and are embedded (`data/profiles.json` says where each
//! comes from). A slice occupies an interval of memory slices, and starts only where the hardware
//! lets it, so a free slice in the wrong place is worth nothing: everything here is in
//! [positions](Position), never in counts alone.

mod geometry;
pub mod measured;
mod table;

pub use geometry::{Geometry, Position, device_label, slice_label};
pub use table::{
    Kind, MOST_CORES, Profile, cores, cores_of, device, kind, kind_on_pci, kinds, undivided,
};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigError {
    #[error("no GPU kind named {name:?}; known are {known}")]
    UnknownKind { name: String, known: String },
    #[error("{kind} has no profile {profile:?}; it has {known}")]
    UnknownProfile { kind: &'static str, profile: String, known: String },
    #[error("{text:?} is not a position; write PROFILE@START, such as 3g.40gb@4")]
    NotAPosition { text: String },
    #[error("{profile} cannot start at {start}; it starts at {starts:?}")]
    BadStart { profile: &'static str, start: u8, starts: &'static [u8] },
    #[error("{first} and {second} overlap")]
    Overlap {
        /// The one that starts first.
        first: Position,
        second: Position,
    },
    #[error("the slices need {needed} compute slices, {kind} has {available}")]
    Compute { kind: &'static str, needed: u32, available: u8 },
    #[error("{count} slices of {profile}, at most {limit} are allowed")]
    TooMany { profile: &'static str, count: usize, limit: u8 },
    #[error("{count} slices with media extensions, at most one is allowed")]
    Media { count: usize },
    #[error("{position} is not a position of {kind}")]
    Foreign { position: Position, kind: &'static str },
}

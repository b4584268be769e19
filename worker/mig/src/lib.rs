//! MIG: which slices a GPU can be cut into.
//!
//! The tables are facts about hardware and are embedded (`data/profiles.json` says where each
//! comes from). A slice occupies an interval of memory slices, and starts only where the hardware
//! lets it, so a free slice in the wrong place is worth nothing: everything here is in
//! [positions](Position), never in counts alone.

mod geometry;
pub mod measured;
mod table;

pub use geometry::{Geometry, Position, slice_label};
pub use table::{Kind, Profile, kind, kind_on_pci, kinds, undivided};

/// Why something is not a GPU, a slice or a geometry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigError {
    /// The table has no such GPU.
    #[error("no GPU kind named {name:?}; known are {known}")]
    UnknownKind {
        /// As asked for.
        name: String,
        /// The names in the table.
        known: String,
    },
    /// The GPU has no such profile.
    #[error("{kind} has no profile {profile:?}; it has {known}")]
    UnknownProfile {
        /// The GPU.
        kind: &'static str,
        /// As asked for.
        profile: String,
        /// The profiles it has.
        known: String,
    },
    /// The text is not `PROFILE@START`.
    #[error("{text:?} is not a position; write PROFILE@START, such as 3g.40gb@4")]
    NotAPosition {
        /// The text.
        text: String,
    },
    /// The profile cannot start there.
    #[error("{profile} cannot start at {start}; it starts at {starts:?}")]
    BadStart {
        /// The profile.
        profile: &'static str,
        /// As asked for.
        start: u8,
        /// Where it can start.
        starts: &'static [u8],
    },
    /// Two slices need the same memory.
    #[error("{first} and {second} overlap")]
    Overlap {
        /// The one that starts first.
        first: Position,
        /// The other.
        second: Position,
    },
    /// The slices need more compute than the GPU has.
    #[error("the slices need {needed} compute slices, {kind} has {available}")]
    Compute {
        /// The GPU.
        kind: &'static str,
        /// What they need.
        needed: u32,
        /// What it has.
        available: u8,
    },
    /// There are more slices of a profile than the GPU allows.
    #[error("{count} slices of {profile}, at most {limit} are allowed")]
    TooMany {
        /// The profile.
        profile: &'static str,
        /// How many there are.
        count: usize,
        /// How many may be.
        limit: u8,
    },
    /// More than one slice wants the media engines.
    #[error("{count} slices with media extensions, at most one is allowed")]
    Media {
        /// How many there are.
        count: usize,
    },
    /// A position of another GPU kind.
    #[error("{position} is not a position of {kind}")]
    Foreign {
        /// The position.
        position: Position,
        /// The GPU.
        kind: &'static str,
    },
}

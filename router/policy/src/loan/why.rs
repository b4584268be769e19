//! Reasons, for people.

use std::{fmt, time::Duration};

use super::JobId;
use crate::moment::Moment;

/// Why a job starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    First,
    /// It does not delay the job that is first and cannot start yet.
    Backfills {
        ahead: JobId,
    },
    /// It had waited too long; what it had before no longer counts against it.
    Promoted {
        waited: Duration,
    },
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("first in the order"),
            Self::Backfills { ahead } => write!(f, "does not delay {ahead}, which is ahead of it"),
            Self::Promoted { waited } => {
                write!(f, "put first after waiting {} s", waited.as_secs())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Inference needs them.
    Inference {
        /// Whether that is sooner than the usual notice.
        emergency: bool,
    },
    /// A job goes first that cannot start otherwise.
    Yields { to: JobId },
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inference { emergency: false } => f.write_str("inference needs the slices"),
            Self::Inference { emergency: true } => {
                f.write_str("inference needs the slices sooner than the usual notice")
            }
            Self::Yields { to } => write!(f, "{to} goes first"),
        }
    }
}

/// Why a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    TooFew {
        needs: u32,
        exist: u32,
    },
    /// Nothing is lent by the rule in force.
    NotLent,
    Quota {
        needs: u32,
        held: u32,
        quota: u32,
    },
    /// It is first in the order, and too few slices are idle beyond what inference may need.
    TooFewIdle {
        needs: u32,
        /// Idle, suited and lendable.
        idle: u32,
    },
    Coming {
        count: u32,
    },
    /// Others go first.
    Behind {
        ahead: u32,
        /// The first of them that cannot start.
        first: JobId,
    },
    Stopping,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { needs, exist } => {
                write!(f, "needs {needs} slices of its size and memory, {exist} exist")
            }
            Self::NotLent => f.write_str("nothing is lent while loaning is none"),
            Self::Quota { needs, held, quota } => {
                write!(f, "needs {needs} slices, its tenant holds {held} of at most {quota}")
            }
            Self::TooFewIdle { needs, idle } => {
                write!(f, "needs {needs} slices, {idle} are idle beyond what inference may need")
            }
            Self::Coming { count } => write!(f, "{count} slices are being given back for it"),
            Self::Behind { ahead, first } => {
                write!(f, "{ahead} jobs go first; {first} cannot start yet")
            }
            Self::Stopping => f.write_str("was told to stop and has not yet"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub job: JobId,
    pub why: Why,
    /// When it may start, as far as is known.
    pub may_start: Option<Moment>,
}

//! Reasons, for people.

use std::{fmt, time::Duration};

use super::JobId;
use crate::moment::Moment;

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
                write!(f, "moved to the front after waiting {} s", waited.as_secs())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
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
                f.write_str("inference needs the slices before the notice period ends")
            }
            Self::Yields { to } => write!(f, "{to} goes first"),
        }
    }
}

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
    Behind {
        ahead: u32,
        first: JobId,
    },
    Stopping,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { needs, exist } => {
                write!(
                    f,
                    "needs {needs} slices of its size and memory; the fleet has {exist}; \
                     submit it for fewer or smaller ones"
                )
            }
            Self::NotLent => f.write_str("rule in [loans] is none: no slices are lent"),
            Self::Quota { needs, held, quota } => {
                write!(
                    f,
                    "needs {needs} slices; its tenant holds {held} of its quota of {quota}, \
                     which is tenant_slices in [loans]"
                )
            }
            Self::TooFewIdle { needs, idle } => {
                write!(f, "needs {needs} slices; {idle} are idle beyond the reserve for inference")
            }
            Self::Coming { count } => write!(f, "{count} slices are being reclaimed for it"),
            Self::Behind { ahead, first } => {
                write!(f, "{ahead} jobs are ahead; {first} is waiting for slices")
            }
            Self::Stopping => f.write_str("is stopping"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_names_the_limit_that_binds() {
        for (why, limit) in [
            (Why::TooFew { needs: 4, exist: 2 }, "the fleet has 2; submit it for fewer"),
            (Why::NotLent, "rule in [loans] is none"),
            (Why::Quota { needs: 2, held: 3, quota: 4 }, "tenant_slices in [loans]"),
            (Why::TooFewIdle { needs: 2, idle: 1 }, "1 are idle beyond the reserve"),
        ] {
            assert!(why.to_string().contains(limit), "{why}");
        }
    }
}

//! A job as the decisions see it.

use std::{fmt, time::Duration};

use super::Slice;
use crate::{fleet::Home, moment::Moment};

/// Up to here a job is short.
const SHORT: Duration = Duration::from_secs(10 * 60);
/// Up to here a job is of medium length.
const MEDIUM: Duration = Duration::from_secs(2 * 3600);
/// Memory kept free on a slice for what a job's estimate forgot.
const MEMORY_MARGIN: f64 = 0.05;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// Whose it is: an index into the tenants.
    pub tenant: usize,
    /// The fewest slices it runs on. At least 1; a gang starts with all of them or not at all.
    pub least: u32,
    /// The most slices it can use. At least `least`.
    pub most: u32,
    /// Compute slices of the smallest slice it takes. At least 1.
    pub compute: u8,
    pub memory_mib: u64,
    /// On what it runs.
    pub home: Home,
    /// How long it takes on its fewest slices, if its owner knows.
    pub takes: Option<Duration>,
    pub deadline: Option<Moment>,
}

impl Ask {
    /// Whether one of its ranks can run on `slice`.
    pub fn suits(&self, slice: &Slice) -> bool {
        self.home.takes(slice.cores)
            && slice.compute >= self.compute
            && has_room(slice.memory_mib, self.memory_mib)
    }
}

/// Whether a slice with so much memory has room for a rank that asks for so much.
pub fn has_room(memory_mib: u64, asked_mib: u64) -> bool {
    asked_mib as f64 <= memory_mib as f64 * (1.0 - MEMORY_MARGIN)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting {
        /// Since it came or was last stopped.
        since: Moment,
    },
    Running {
        /// Since it started or its number of slices last changed.
        since: Moment,
        lease_until: Moment,
    },
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub ask: Ask,
    pub submitted: Moment,
    pub phase: Phase,
    /// GPU-seconds it has had: the sum over its slices of their part of a GPU times the time.
    pub attained: f64,
    /// What of these no longer counts against it, since it had waited too long.
    pub forgiven: f64,
    /// How long it has run, over all its starts.
    pub ran: Duration,
    /// How much of its work is done, from 0 to 1, if it says.
    pub progress: Option<f64>,
    /// When it last reported a checkpoint, if it ever did since it started.
    pub checkpoint: Option<Moment>,
    /// How long a checkpoint takes it once asked, if it ever answered such a call.
    pub checkpoint_takes: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Short,
    Medium,
    Long,
    Unknown,
}

impl Class {
    pub fn of(takes: Option<Duration>) -> Self {
        match takes {
            Some(takes) if takes <= SHORT => Self::Short,
            Some(takes) if takes <= MEDIUM => Self::Medium,
            Some(_) => Self::Long,
            None => Self::Unknown,
        }
    }
}

impl Job {
    pub fn counted(&self) -> f64 {
        (self.attained - self.forgiven).max(0.0)
    }

    /// What it would still take, if that can be known.
    ///
    /// By its own progress where it reports any and has run; by its owner's word otherwise.
    pub fn remaining(&self) -> Option<Duration> {
        let seconds = match (self.progress, self.ask.takes) {
            (Some(done), _) if done > 0.0 && !self.ran.is_zero() => {
                self.ran.as_secs_f64() * (1.0 / done.min(1.0) - 1.0)
            }
            (done, Some(takes)) => takes.as_secs_f64() * (1.0 - done.unwrap_or(0.0)),
            (_, None) => return None,
        };
        Duration::try_from_secs_f64(seconds.max(0.0)).ok()
    }

    pub fn waited(&self, now: Moment) -> Option<Duration> {
        match self.phase {
            Phase::Waiting { since } => Some(now.since(since)),
            Phase::Running { .. } | Phase::Leaving => None,
        }
    }
}

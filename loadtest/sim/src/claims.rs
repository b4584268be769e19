//! What must be true after every event, whatever happens.

use std::fmt;

use policy::moment::Moment;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    Backwards {
        from: Moment,
    },
    /// A request ended that had ended, or had never come.
    EndedTwice {
        request: u64,
    },
    /// Requests that came are not those that ended and those that live.
    Uncounted {
        offered: u64,
        ended: u64,
        live: u64,
    },
    /// A model's queue and replicas hold other requests than those that live.
    Mislaid {
        model: String,
        held: usize,
        live: usize,
    },
    /// A request lives past its deadline.
    Overdue {
        request: u64,
    },
    /// A batch went to a replica that is not in rotation.
    SentNowhere {
        replica: usize,
    },
    ThirdBatch {
        replica: usize,
    },
    /// A batch has no rows or too many.
    BadSize {
        rows: u32,
    },
    /// A model's machine asks to be woken at once, again and again.
    Restless {
        model: String,
    },
    /// A GPU is cut as it cannot be.
    Geometry {
        gpu: usize,
    },
    /// A slice has more on it than it has memory, or two owners.
    Overbooked {
        gpu: usize,
        slice: usize,
    },
    Own(String),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backwards { from } => write!(f, "time went back from {} us", from.micros()),
            Self::EndedTwice { request } => write!(f, "request {request} ended twice"),
            Self::Uncounted { offered, ended, live } => {
                write!(f, "{offered} requests came, {ended} ended, {live} live")
            }
            Self::Mislaid { model, held, live } => {
                write!(f, "{model:?} holds {held} requests, {live} live")
            }
            Self::Overdue { request } => write!(f, "request {request} lives past its deadline"),
            Self::SentNowhere { replica } => {
                write!(f, "a batch was sent to replica {replica}, which is not in rotation")
            }
            Self::ThirdBatch { replica } => write!(f, "a third batch for replica {replica}"),
            Self::BadSize { rows } => write!(f, "a batch of {rows} rows"),
            Self::Restless { model } => write!(f, "{model:?} wants to be woken again at once"),
            Self::Geometry { gpu } => write!(f, "GPU {gpu} is cut as it cannot be"),
            Self::Overbooked { gpu, slice } => {
                write!(f, "slice {slice} of GPU {gpu} has more on it than it can hold")
            }
            Self::Own(text) => f.write_str(text),
        }
    }
}

/// A claim that was broken, and the run that shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    pub claim: Claim,
    pub seed: u64,
    pub events: u64,
    pub at: Moment,
    /// The last events before it, oldest first.
    pub trail: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.micros() as f64 / 1e6;
        write!(
            f,
            "seed {}: {} after {} events, at {seconds:.6} s",
            self.seed, self.claim, self.events
        )?;
        for event in &self.trail {
            write!(f, "\n  {event}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Broken {}

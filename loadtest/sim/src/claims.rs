//! What must be true after every event, whatever happens.

use std::fmt;

use policy::moment::Moment;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Time went back.
    Backwards {
        /// From here.
        from: Moment,
    },
    /// A request ended that had ended, or had never come.
    EndedTwice {
        /// Its name.
        request: u64,
    },
    /// Requests that came are not those that ended and those that live.
    Uncounted {
        /// Those that came.
        offered: u64,
        /// Those that ended.
        ended: u64,
        /// Those that live.
        live: u64,
    },
    /// A model's queue and replicas hold other requests than those that live.
    Mislaid {
        /// The model.
        model: String,
        /// What its machine holds.
        held: usize,
        /// How many of its requests live.
        live: usize,
    },
    /// A request lives past its deadline.
    Overdue {
        /// Its name.
        request: u64,
    },
    /// A batch went to a replica that is not in rotation.
    SentNowhere {
        /// The replica.
        replica: usize,
    },
    /// A replica was given a third batch.
    ThirdBatch {
        /// The replica.
        replica: usize,
    },
    /// A batch has no rows or too many.
    BadSize {
        /// Its rows.
        rows: u32,
    },
    /// A model's machine asks to be woken at once, again and again.
    Restless {
        /// The model.
        model: String,
    },
    /// A GPU is cut as it cannot be.
    Geometry {
        /// Which.
        gpu: usize,
    },
    /// A slice has more on it than it has memory, or two owners.
    Overbooked {
        /// The GPU.
        gpu: usize,
        /// The slice.
        slice: usize,
    },
    /// A claim of the caller's own.
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
    /// What was broken.
    pub claim: Claim,
    /// The run's seed.
    pub seed: u64,
    /// How many events it takes.
    pub events: u64,
    /// When, in the run's time.
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

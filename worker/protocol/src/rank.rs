//! A training job's rank on a slice: what shall run there, what does, and the words between a
//! worker and the process that stands over it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A rank that shall be on a slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesiredRank {
    pub spec: RankSpec,
    /// Whether it shall stop, and has its notice to do so; it is killed then.
    pub stop: Option<Stop>,
    /// The part of the time it may run, in percent; paused for the rest. 1 to 100.
    pub duty: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// From hearing it to the kill, in milliseconds.
    pub notice_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankSpec {
    pub job: u64,
    /// Which start of the job it belongs to; a rank of one start is never begun twice.
    pub run: u32,
    /// Which rank, from 0.
    pub rank: u32,
    pub world_size: u32,
    /// Which of the ranks on its machine, from 0.
    pub local_rank: u32,
    /// How many of the ranks are on its machine.
    pub local_world_size: u32,
    /// Where rank 0 is.
    pub master_address: String,
    /// The port that rank 0 may listen on.
    pub master_port: u16,
    pub argv: Vec<String>,
    /// What its environment has besides the contract's variables.
    pub environment: BTreeMap<String, String>,
    /// Its time to stop where nobody says otherwise, in milliseconds.
    pub notice_ms: u64,
    /// It is stopped when no router was heard of for so long, in milliseconds.
    pub lease_ms: u64,
}

impl RankSpec {
    /// What names it among all ranks that ever were.
    pub fn name(&self) -> String {
        format!("{}.{}.{}", self.job, self.run, self.rank)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    pub job: u64,
    pub run: u32,
    pub rank: u32,
    pub state: RankState,
    /// The last of its progress that could be read.
    pub progress: Option<RankProgress>,
    /// Of one that failed, the last line of its stderr. Version 3 does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankState {
    #[default]
    Starting,
    Running {
        pid: u32,
    },
    /// It was asked to checkpoint before it stops.
    Checkpointing,
    Stopping,
    Ended(RankEnd),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankEnd {
    Exited {
        code: i32,
    },
    Killed {
        signal: i32,
        /// Whether that was ours, because it did not stop in time.
        overdue: bool,
    },
    Exceeded {
        what: String,
    },
    /// It was stopped because nobody renewed its loan.
    Expired,
    /// It could not be started, or what became of it is not known.
    Lost {
        reason: String,
    },
}

/// The last line of a rank's progress file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankProgress {
    pub step: u64,
    pub steps: Option<u64>,
    pub checkpoint: Option<u64>,
    /// How long ago that was first read, in milliseconds.
    pub checkpoint_age_ms: Option<u64>,
}

/// What a worker tells the process that stands over a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankOrder {
    Stop(Stop),
    /// Let it run this part of the time, in percent.
    Duty(u8),
    Renewed,
    /// Speak this version from now on, 3 before it. One of version 3 is not told.
    Speak(u16),
}

/// A line of what a rank printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPiece {
    /// Where it begins, in bytes since the job's rank first printed.
    pub from: u64,
    /// The text; what is not UTF-8 is replaced.
    pub text: String,
    pub next: u64,
}

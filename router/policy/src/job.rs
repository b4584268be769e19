//! A training job's life: what it is doing, and what becomes of it.
//!
//! The stored form of a job is its owner's submission beside its [`Life`]; the control round reads
//! and changes only the latter.

mod settle;

use serde::{Deserialize, Serialize};

use crate::fleet::SliceId;

pub use self::settle::{Terms, begin, settle};

const STEPS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for slices for the first time, or again after it failed.
    Queued,
    Starting,
    Running,
    /// Gives some slices back, and goes on with the others.
    Shrinking,
    Noticed,
    /// Writes a checkpoint before it stops.
    Checkpointing,
    Preempted,
    Done,
    Failed,
    Cancelled,
}

impl State {
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Shrinking,
        Self::Noticed,
        Self::Checkpointing,
        Self::Preempted,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Shrinking => "shrinking",
            Self::Noticed => "noticed",
            Self::Checkpointing => "checkpointing",
            Self::Preempted => "preempted",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn is_over(self) -> bool {
        match self {
            Self::Done | Self::Failed | Self::Cancelled => true,
            Self::Queued
            | Self::Starting
            | Self::Running
            | Self::Shrinking
            | Self::Noticed
            | Self::Checkpointing
            | Self::Preempted => false,
        }
    }

    pub fn waits(self) -> bool {
        match self {
            Self::Queued | Self::Preempted => true,
            Self::Starting
            | Self::Running
            | Self::Shrinking
            | Self::Noticed
            | Self::Checkpointing
            | Self::Done
            | Self::Failed
            | Self::Cancelled => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    pub then: State,
    /// The slices it goes on with, if it becomes [`State::Starting`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seats: Vec<SliceId>,
    pub reason: String,
    pub notice_ms: u64,
    pub by_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub state: State,
    pub reason: String,
    pub at_ms: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The step of its last checkpoint, if it made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_ms: Option<u64>,
}

/// The part of a job's record that decides and that decisions change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Life {
    pub state: State,
    pub reason: String,
    pub since_ms: u64,
    /// What it did before, oldest first.
    pub history: Vec<Step>,
    /// How often it was started. Its ranks carry the number, so that none is started twice.
    pub run: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seats: Vec<SliceId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_seats: Vec<SliceId>,
    #[serde(default)]
    pub gpus: f64,
    #[serde(default)]
    pub started_ms: u64,
    /// How long a checkpoint took it when it was last asked for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_takes_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stopping>,
    pub failures: u32,
    /// It is not started before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<u64>,
    /// GPU-seconds it has had.
    pub attained_gpu_s: f64,
    /// What of these no longer counts against it.
    pub forgiven_gpu_s: f64,
    pub ran_s: f64,
    /// GPU-seconds of work that were done again, or never.
    pub lost_gpu_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RankSeen {
    /// Its worker or its slice has not been seen for longer than its loan lasts: it has ended.
    Gone,
    /// Nothing is known of it yet, or for the moment.
    Unknown,
    Reported(Rank),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank {
    pub run: u32,
    pub state: RankState,
    pub progress: Option<RankProgress>,
    /// Of one that failed, the last line of its stderr.
    pub said: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RankState {
    #[default]
    Starting,
    Running,
    /// It was asked to checkpoint before it stops.
    Checkpointing,
    Stopping,
    Ended(RankEnd),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankEnd {
    /// By itself.
    Exited {
        code: i32,
    },
    /// By a signal.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankProgress {
    pub step: u64,
    pub steps: Option<u64>,
    /// The step of its last checkpoint, if it made one.
    pub checkpoint: Option<u64>,
    /// How long ago that was written, in milliseconds.
    pub checkpoint_age_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Loans that ended because inference needed the slices.
    pub for_inference: u64,
    /// Of these, with less than the usual notice.
    pub in_emergency: u64,
    /// Loans that ended because another job went first.
    pub for_jobs: u64,
    /// Jobs that were killed because they did not stop in time.
    pub overdue: u64,
    /// GPU-seconds of training that were done in vain.
    pub lost_gpu_s: f64,
    pub done: u64,
    pub failed: u64,
    pub cancelled: u64,
}

impl Life {
    pub fn new(now_ms: u64) -> Self {
        Self {
            state: State::Queued,
            reason: "submitted".to_owned(),
            since_ms: now_ms,
            history: Vec::new(),
            run: 0,
            seats: Vec::new(),
            last_seats: Vec::new(),
            gpus: 0.0,
            started_ms: 0,
            checkpoint_takes_ms: None,
            stop: None,
            failures: 0,
            not_before_ms: None,
            attained_gpu_s: 0.0,
            forgiven_gpu_s: 0.0,
            ran_s: 0.0,
            lost_gpu_s: 0.0,
            progress: None,
        }
    }

    /// The slices it has, and those it is about to go on with.
    pub fn slices(&self) -> impl Iterator<Item = &SliceId> {
        self.seats.iter().chain(self.stop.iter().flat_map(|stop| &stop.seats))
    }

    /// Tells it to stop; one that was told before is given no more time, and ends as told now.
    pub fn stop(&mut self, state: State, stop: Stopping, now_ms: u64) {
        self.enter(state, stop.reason.clone(), now_ms);
        let by_ms = self.stop.as_ref().map_or(stop.by_ms, |before| before.by_ms.min(stop.by_ms));
        let notice_ms = match &self.stop {
            Some(before) => before.notice_ms.min(stop.notice_ms),
            None => stop.notice_ms,
        };
        self.stop = Some(Stopping { by_ms, notice_ms, ..stop });
    }

    /// Reckons by a clock that was set back since this was written: what lies ahead lies as far ahead as
    /// it did.
    pub fn redate(&mut self, now_ms: u64) {
        let back_ms = self.since_ms.saturating_sub(now_ms);
        let stop = self.stop.as_mut().map(|stop| &mut stop.by_ms);
        let dates = [&mut self.since_ms, &mut self.started_ms].into_iter();
        for date in dates.chain(&mut self.not_before_ms).chain(stop) {
            *date = date.saturating_sub(back_ms);
        }
    }

    /// The same but for what changes all the time and may be lost.
    #[must_use]
    pub fn steady(&self) -> Self {
        Self { attained_gpu_s: 0.0, ran_s: 0.0, progress: None, ..self.clone() }
    }

    /// Enters `state` for `reason`; what it did before becomes past.
    pub fn enter(&mut self, state: State, reason: impl Into<String>, now_ms: u64) {
        let reason = reason.into();
        if self.state == state && self.reason == reason {
            return;
        }
        let before = std::mem::replace(&mut self.reason, reason);
        self.history.push(Step { state: self.state, reason: before, at_ms: self.since_ms });
        if self.history.len() > STEPS {
            // How it came to be stays.
            self.history.remove(1);
        }
        self.state = state;
        self.since_ms = now_ms;
    }
}

impl Counts {
    /// Counts a job that came to be in `state`.
    pub fn entered(&mut self, state: State) {
        match state {
            State::Done => self.done += 1,
            State::Failed => self.failed += 1,
            State::Cancelled => self.cancelled += 1,
            State::Queued
            | State::Starting
            | State::Running
            | State::Shrinking
            | State::Noticed
            | State::Checkpointing
            | State::Preempted => {}
        }
    }

    /// Adds what `more` counted.
    pub fn add(&mut self, more: Self) {
        self.for_inference += more.for_inference;
        self.in_emergency += more.in_emergency;
        self.for_jobs += more.for_jobs;
        self.overdue += more.overdue;
        self.lost_gpu_s += more.lost_gpu_s;
        self.done += more.done;
        self.failed += more.failed;
        self.cancelled += more.cancelled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_bounded_and_begins_with_the_submission() {
        let mut life = Life::new(0);
        for round in 0..500 {
            life.enter(State::Running, format!("round {round}"), round + 1);
        }
        assert_eq!(life.history.len(), STEPS);
        assert_eq!((life.history[0].state, life.history[0].at_ms), (State::Queued, 0));
        assert_eq!(life.history[STEPS - 1].reason, "round 498");
    }
}

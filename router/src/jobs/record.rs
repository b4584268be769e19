//! A job as it is kept.

use std::collections::BTreeMap;

use policy::fleet::SliceId;
use serde::{Deserialize, Serialize};

/// Steps of a job's past that are kept.
const STEPS: usize = 64;

/// What a job was submitted as, once it passed every check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its name, for people.
    pub name: String,
    /// Whose it is; absent where no tenants are configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// What its environment has besides the contract's variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The fewest slices it runs on.
    pub slices_min: u32,
    /// The most slices it can use.
    pub slices_max: u32,
    /// The smallest profile it takes; absent, any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Memory it needs on each slice.
    pub memory_mib: u64,
    /// How long it takes on its fewest slices, if its owner says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_s: Option<u64>,
    /// When it must have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// How often it is started again after it failed by itself.
    pub retries: u32,
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for slices for the first time, or again after it failed.
    Queued,
    /// Its ranks are being started.
    Starting,
    /// All its ranks run.
    Running,
    /// Gives some slices back, and goes on with the others.
    Shrinking,
    /// Was told to stop.
    Noticed,
    /// Writes a checkpoint before it stops.
    Checkpointing,
    /// Gave its slices back, and waits to go on.
    Preempted,
    /// Ended well.
    Done,
    /// Ended badly.
    Failed,
    /// Was ended by request.
    Cancelled,
}

impl State {
    /// Every state, in the order of a life.
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

    /// The word for it.
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

    /// Whether nothing more will happen to it.
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

    /// Whether it has no slices and wants some.
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

/// A job on its way out of its slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    /// What it becomes when its ranks have ended.
    pub then: State,
    /// The slices it goes on with, if it becomes [`State::Starting`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seats: Vec<SliceId>,
    /// Why, for people.
    pub reason: String,
    /// From the call to the kill.
    pub notice_ms: u64,
    /// When its ranks have to have ended.
    pub by_ms: u64,
}

/// One step of a job's past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What it came to be.
    pub state: State,
    /// Why.
    pub reason: String,
    /// When.
    pub at_ms: u64,
}

/// How far a job says it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The last step done.
    pub step: u64,
    /// All its steps, if it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The step of its last checkpoint, if it made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u64>,
    /// When that was reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_ms: Option<u64>,
}

/// A job as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its number.
    pub id: u64,
    /// What it was submitted as.
    pub spec: Spec,
    /// When.
    pub submitted_ms: u64,
    /// The caller's own name for the submission, by which a repetition is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// What it is doing.
    pub state: State,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since_ms: u64,
    /// What it did before, oldest first.
    pub history: Vec<Step>,
    /// How often it was started. Its ranks carry the number, so that none is started twice.
    pub run: u32,
    /// The slices of its ranks, by rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seats: Vec<SliceId>,
    /// The slices it last had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_seats: Vec<SliceId>,
    /// What its slices are of a GPU, together.
    #[serde(default)]
    pub gpus: f64,
    /// When it was last started.
    #[serde(default)]
    pub started_ms: u64,
    /// How long a checkpoint took it when it was last asked for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_takes_ms: Option<u64>,
    /// Present if it was told to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stopping>,
    /// How often it failed by itself.
    pub failures: u32,
    /// It is not started before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<u64>,
    /// GPU-seconds it has had.
    pub attained_gpu_s: f64,
    /// What of these no longer counts against it.
    pub forgiven_gpu_s: f64,
    /// How long it has run.
    pub ran_s: f64,
    /// GPU-seconds of work that were done again, or never.
    pub lost_gpu_s: f64,
    /// How far it says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

impl Record {
    /// A job that has just come.
    pub fn new(id: u64, spec: Spec, key: Option<String>, now_ms: u64) -> Self {
        Self {
            id,
            spec,
            submitted_ms: now_ms,
            idempotency_key: key,
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
        self.submitted_ms = self.submitted_ms.min(now_ms);
    }

    /// The same but for what changes all the time and may be lost.
    pub(super) fn steady(&self) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn spec() -> Spec {
        Spec {
            name: "bert".to_owned(),
            tenant: None,
            argv: vec!["python3".to_owned(), "train.py".to_owned()],
            environment: BTreeMap::new(),
            slices_min: 1,
            slices_max: 2,
            profile: None,
            memory_mib: 0,
            takes_s: None,
            deadline_ms: None,
            retries: 3,
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let mut record = Record::new(7, spec(), Some("key".to_owned()), 1_000);
        record.enter(State::Starting, "first in the order", 2_000);
        record.seats = vec![SliceId { worker: "w".into(), gpu: 0, position: "1g.10gb@0".into() }];
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }

    #[test]
    fn the_past_is_bounded_and_begins_with_the_submission() {
        let mut record = Record::new(1, spec(), None, 0);
        for round in 0..500 {
            record.enter(State::Running, format!("round {round}"), round + 1);
        }
        assert_eq!(record.history.len(), STEPS);
        assert_eq!((record.history[0].state, record.history[0].at_ms), (State::Queued, 0));
        assert_eq!(record.history[STEPS - 1].reason, "round 498");
    }
}

//! A job beside what the decisions see of it.

use std::time::Duration;

use policy::{
    loan::{Ask, Job, JobId, Phase},
    moment::Moment,
};

use super::{Habits, TraceJob};

#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// Seconds of work left at its asked width.
    pub(super) left_s: f64,
    pub(super) saved_s: f64,
    pub(super) total_s: f64,
    /// When it begins to make progress after a start.
    pub(super) ready: Moment,
}

pub(super) fn waiting(id: JobId, job: &TraceJob, habits: &Habits) -> Job {
    Job {
        id,
        ask: Ask {
            tenant: job.tenant,
            least: job.gpus,
            most: if habits.elastic { job.gpus * 2 } else { job.gpus },
            compute: 1,
            memory_mib: 0,
            home: policy::fleet::Home::Any,
            takes: habits.lengths_known.then_some(job.takes),
            deadline: None,
        },
        submitted: job.submitted,
        phase: Phase::Waiting { since: job.submitted },
        attained: 0.0,
        forgiven: 0.0,
        ran: Duration::ZERO,
        progress: None,
        checkpoint: None,
        checkpoint_takes: Some(habits.checkpoint_takes),
    }
}

pub(super) fn checkpoint(job: &mut Job, life: &mut Life, now: Moment, habits: &Habits) {
    let Phase::Running { since, .. } = job.phase else { return };
    if now.since(job.checkpoint.unwrap_or(since)) >= habits.checkpoint_every {
        job.checkpoint = Some(now);
        life.saved_s = life.left_s;
    }
}

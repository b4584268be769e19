//! Making jobs durable, without waiting for a store that doesn't answer.

use std::{sync::Arc, time::Duration};

use policy::{
    job::Counts,
    round::{LoanMemory, Round},
};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, timeout},
};

use crate::{jobs::Jobs, records::KeepError};

/// How long a commit is waited for before workers are told without it.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often the progress of jobs and the accounts of tenants are written.
const WRITE_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Commits {
    /// When progress and accounts were written last.
    written: Instant,
    unfinished: Option<JoinHandle<Result<(), KeepError>>>,
    has_failed: bool,
}

impl Commits {
    pub(super) fn new() -> Self {
        Self { written: Instant::now(), unfinished: None, has_failed: false }
    }

    /// Commits what a round does to jobs; whether that is durable now.
    pub(super) async fn commit(
        &mut self,
        jobs: &Arc<Jobs>,
        round: &Round,
        loans: &LoanMemory,
    ) -> bool {
        if let Some(before) = self.unfinished.take() {
            if !before.is_finished() {
                self.unfinished = Some(before);
                return false;
            }
            self.report(before.await.unwrap_or(Ok(())).err().as_ref());
            // The world may have been read before that was known.
            return false;
        }
        let due = self.written.elapsed() >= WRITE_EVERY;
        if round.jobs.is_empty() && round.counts == Counts::default() && !due {
            return true;
        }
        if due {
            self.written = Instant::now();
        }
        let accounts = due.then(|| loans.accounts().clone());
        let (jobs, changes, counts) = (Arc::clone(jobs), round.jobs.clone(), round.counts);
        let mut commit = spawn_blocking(move || {
            jobs.keep(&changes, counts)?;
            accounts.map_or(Ok(()), |accounts| jobs.write_rest(accounts))
        });
        match timeout(PATIENCE, &mut commit).await {
            Ok(kept) => {
                let kept = kept.unwrap_or(Ok(()));
                self.report(kept.as_ref().err());
                kept.is_ok()
            }
            Err(_) => {
                self.unfinished = Some(commit);
                false
            }
        }
    }

    /// Logs once that nothing can be written, and once that it can again.
    fn report(&mut self, error: Option<&KeepError>) {
        match error {
            Some(error) if !self.has_failed => {
                tracing::error!(%error, "failed to persist jobs; no job starts or ends until then");
            }
            None if self.has_failed => tracing::info!("jobs are persisted again"),
            Some(_) | None => {}
        }
        self.has_failed = error.is_some();
    }
}

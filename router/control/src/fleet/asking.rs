//! Questions to workers, and their answers.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use protocol::{LogPiece, ToWorker};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::Fleet;

const WAIT: Duration = Duration::from_secs(5);
/// The most questions to one worker that wait to be sent.
pub(super) const WAITING: usize = 64;

/// What a rank printed, asked of the worker that has it.
#[derive(Clone, Copy, Debug)]
pub struct LogQuestion {
    pub job: u64,
    pub rank: u32,
    /// Where to begin; absent, near the end.
    pub from: Option<u64>,
    /// The most bytes to send.
    pub most: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    #[error("the worker is away")]
    Away,
    #[error("the worker does not answer")]
    Silent,
}

/// The questions that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Questions {
    last: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<Option<LogPiece>>>>,
}

impl Questions {
    /// Takes an answer; nobody may be waiting for it any more.
    pub(super) fn answer(&self, question: u64, piece: Option<LogPiece>) {
        if let Some(asker) = self.open.lock().remove(&question) {
            let _ = asker.send(piece);
        }
    }

    fn ask(&self) -> (u64, oneshot::Receiver<Option<LogPiece>>) {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.open.lock().insert(number, sender);
        (number, answer)
    }

    fn forget(&self, question: u64) {
        self.open.lock().remove(&question);
    }
}

impl Fleet {
    /// What a rank printed on `worker`; nothing if that never had it.
    pub async fn read_log(
        &self,
        worker: &str,
        asked: LogQuestion,
    ) -> Result<Option<LogPiece>, Unanswered> {
        let asking = self.known.lock().workers.get(worker).and_then(|member| {
            member.conversation?;
            Some(member.asking.clone())
        });
        let asking: mpsc::Sender<ToWorker> = asking.ok_or(Unanswered::Away)?;
        let (question, answer) = self.questions.ask();
        let LogQuestion { job, rank, from, most } = asked;
        let sent = asking.try_send(ToWorker::ReadLog { question, job, rank, from, most });
        let answered = match sent {
            Ok(()) => timeout(WAIT, answer).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        self.questions.forget(question);
        answered.ok_or(Unanswered::Silent)
    }
}

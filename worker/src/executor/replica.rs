//! One loaded model and the batches it was given.

use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use protocol::{Answer, Batch, Blame, Facts, Outcome, Part, Reply};

use super::link::{Link, failed};
use crate::{
    clock,
    engine::{Done, Engine, Lost, RunError},
    signature::{Refusal, Signature},
};

/// The most batches a replica has at once: one running, and one so that it need not wait for the
/// next.
const MAX_BATCHES: usize = 2;

/// A batch and whom to answer.
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) body: Bytes,
    pub(super) arrived: Instant,
    pub(super) from: Arc<Link>,
}

/// What a replica checks batches against.
pub(super) struct Ready {
    pub(super) signature: Signature,
    pub(super) max_batch: u32,
}

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Rejected {
    #[error("there is no replica {replica} here")]
    Unknown { replica: u32 },
    #[error("replica {replica} is not ready")]
    NotReady { replica: u32 },
    #[error("replica {replica} is being unloaded")]
    Closed { replica: u32 },
    #[error("replica {replica} has {MAX_BATCHES} batches already")]
    Full { replica: u32 },
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Rejected {
    pub(super) fn blame(&self) -> Blame {
        match self {
            Self::Unknown { .. }
            | Self::NotReady { .. }
            | Self::Closed { .. }
            | Self::Full { .. } => Blame::Replica,
            Self::Refused(_) => Blame::Request,
        }
    }
}

/// A replica as every thread sees it.
pub(super) struct Replica {
    id: u32,
    ready: RwLock<Option<Ready>>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    running: bool,
    closed: bool,
}

impl Replica {
    /// A replica that takes no batches yet.
    pub(super) fn new(id: u32) -> Self {
        Self { id, ready: RwLock::default(), queue: Mutex::default(), wake: Condvar::new() }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Takes batches from now on.
    pub(super) fn open(&self, ready: Ready) {
        *self.ready.write() = Some(ready);
    }

    /// Takes no more batches; those it has are finished.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.wake.notify_all();
    }

    /// Queues a batch.
    pub(super) fn push(&self, job: Job) -> Result<(), Rejected> {
        let replica = self.id;
        let ready = self.ready.read();
        let wanted = ready.as_ref().ok_or(Rejected::NotReady { replica })?;
        wanted.signature.check(&job.batch, wanted.max_batch)?;
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(Rejected::Closed { replica });
        }
        if queue.waiting.len() + usize::from(queue.running) >= MAX_BATCHES {
            return Err(Rejected::Full { replica });
        }
        queue.waiting.push_back(job);
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    /// Takes back a batch that has not started.
    pub(super) fn cancel(&self, link: u64, batch: u64) -> Option<Job> {
        let mut queue = self.queue.lock();
        let mine = |job: &Job| job.from.id() == link && job.batch.id == batch;
        let index = queue.waiting.iter().position(mine)?;
        queue.waiting.remove(index)
    }

    /// Drops the batches of a connection that has ended.
    pub(super) fn forget(&self, link: u64) {
        self.queue.lock().waiting.retain(|job| job.from.id() != link);
    }

    /// Runs batches on this thread until the replica is closed and has none, or its model is gone.
    pub(super) fn work(&self, mut engine: Box<dyn Engine>) -> Result<(), Lost> {
        loop {
            let job = match self.next(engine.look_every()) {
                Next::Job(job) => job,
                Next::Nothing => {
                    engine.look().inspect_err(|lost| self.shut(lost))?;
                    continue;
                }
                Next::Closed => return Ok(()),
            };
            let started = clock::now();
            let result = run(engine.as_mut(), &job);
            let lost =
                if let Err(RunError::Lost(lost)) = &result { Some(lost.clone()) } else { None };
            // Before the reply, so that nobody answers it with another batch.
            lost.iter().for_each(|lost| self.shut(lost));
            let waited_us = clock::micros(started - job.arrived);
            // Before the reply, or a router that answers it with a batch might find no room.
            self.queue.lock().running = false;
            let (outcome, facts, body) = ending(&job.batch, result);
            let facts = Facts { waited_us, ..facts };
            job.from.reply(Reply { batch: job.batch.id, outcome, facts }, &body);
            if let Some(lost) = lost {
                return Err(lost);
            }
        }
    }

    /// Returns after `wait`, or at once if the replica is closed; says whether it is.
    pub(super) fn closed_within(&self, wait: Duration) -> bool {
        let mut queue = self.queue.lock();
        self.wake.wait_while_for(&mut queue, |queue| !queue.closed, wait);
        queue.closed
    }

    /// Takes no more batches until it is opened again; those it has fail for want of a model.
    fn shut(&self, lost: &Lost) {
        *self.ready.write() = None;
        let waiting = std::mem::take(&mut self.queue.lock().waiting);
        for job in waiting {
            let outcome = failed(Blame::Replica, lost);
            let reply = Reply { batch: job.batch.id, outcome, facts: Facts::default() };
            job.from.reply(reply, &[]);
        }
    }

    fn next(&self, patience: Option<Duration>) -> Next {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.waiting.pop_front() {
                queue.running = true;
                return Next::Job(job);
            }
            if queue.closed {
                return Next::Closed;
            }
            match patience {
                None => self.wake.wait(&mut queue),
                Some(patience) => {
                    if self.wake.wait_for(&mut queue, patience).timed_out() {
                        return Next::Nothing;
                    }
                }
            }
        }
    }
}

/// What a replica's thread found when it looked for work.
enum Next {
    Job(Job),
    /// No work for as long as it cared to wait.
    Nothing,
    Closed,
}

fn run(engine: &mut dyn Engine, job: &Job) -> Result<Done, RunError> {
    let run = AssertUnwindSafe(|| engine.run(&job.batch, &job.body));
    catch_unwind(run).unwrap_or_else(|panic| Err(RunError::Model { reason: said(&*panic) }))
}

/// What a panic said, if it said anything.
pub(super) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("without a message"))
}

fn ending(batch: &Batch, result: Result<Done, RunError>) -> (Outcome, Facts, Vec<Bytes>) {
    match result {
        Ok(done) => {
            let facts = Facts {
                waited_us: 0,
                input_us: clock::micros(done.input),
                compute_us: clock::micros(done.compute),
                output_us: clock::micros(done.output),
            };
            let (answer, body) = answer(batch, done);
            (Outcome::Done(answer), facts, body)
        }
        Err(error) => {
            let blame = match &error {
                RunError::Refused(_) | RunError::Inputs { .. } => Blame::Request,
                RunError::Model { .. } | RunError::Lost(_) => Blame::Replica,
            };
            (failed(blame, &error), Facts::default(), Vec::new())
        }
    }
}

fn answer(batch: &Batch, done: Done) -> (Answer, Vec<Bytes>) {
    let part = |(index, part): (usize, &Part)| Part {
        rows: part.rows,
        bytes: done.outputs.iter().map(|output| output.lengths[index]).collect(),
    };
    let requests = batch.requests.iter().enumerate().map(part).collect();
    let (mut heads, mut body) = (Vec::new(), Vec::new());
    for output in done.outputs {
        heads.push(output.head);
        body.extend(output.data);
    }
    (Answer { outputs: heads, requests }, body)
}

#[cfg(test)]
mod tests;

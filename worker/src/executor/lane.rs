//! The one stream of execution of this process: batches of all its models run one at a time, in the
//! order they came, so that models that share a slice take turns.
//!
//! Batches are run by a thread of their own, so that whoever reads them can go on reading. A brief
//! one is over sooner than that thread has woken up, and is run by the thread that read it.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Condvar, FairMutex, Mutex, MutexGuard};
use protocol::{Batch, Blame, Facts, Reply};

use super::{link::Link, replica::Replica};
use crate::{clock, engine::Pace, signature::Refusal};

/// The most batches a replica has of one router at once: one running, and one so that it need not
/// wait for the next.
const MAX_BATCHES: usize = 2;

/// Batches that take no longer are brief. Nothing is read meanwhile, pings neither.
const BRIEF: Duration = Duration::from_millis(1);

pub(super) struct Work {
    pub(super) replica: Arc<Replica>,
    pub(super) batch: Batch,
    pub(super) body: Bytes,
    pub(super) arrived: Instant,
    pub(super) from: Arc<Link>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Rejected {
    #[error("there is no replica {replica} here")]
    Unknown { replica: u32 },
    #[error("replica {replica} is not ready")]
    NotReady { replica: u32 },
    #[error("replica {replica} is being unloaded")]
    Closed { replica: u32 },
    #[error("replica {replica} has {MAX_BATCHES} batches of this router already")]
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

#[derive(Default)]
pub(super) struct Lane {
    queue: Mutex<Queue>,
    /// There is a batch to run, and nobody who runs one.
    due: Condvar,
    /// Something happened that a replica's own thread waits for.
    settled: Condvar,
    /// Held for every run, of a batch or to warm a model. Fair, or one could starve the other.
    device: FairMutex<()>,
    busy_us: AtomicU64,
    pace: Pace,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Work>,
    /// The replica that runs a batch, and the link that it came by.
    running: Option<(u32, u64)>,
}

impl Queue {
    /// The batches of a replica, and the links they came by.
    fn of(&self, replica: u32) -> impl Iterator<Item = u64> {
        let waiting = self.waiting.iter().map(|work| (work.replica.id(), work.from.id()));
        let all = waiting.chain(self.running);
        all.filter(move |(whose, _)| *whose == replica).map(|(_, link)| link)
    }
}

impl Lane {
    pub(super) fn busy_us(&self) -> u64 {
        self.busy_us.load(Ordering::Relaxed)
    }

    /// How many times as long as alone models take that only pretend to work.
    pub(super) fn pace(&self) -> f64 {
        self.pace.factor()
    }

    pub(super) fn set_pace(&self, factor: f64) {
        self.pace.slow_down(factor);
    }

    /// Runs something that needs the slice to itself.
    pub(super) fn turn<T>(&self, run: impl FnOnce() -> T) -> T {
        let _device = self.device.lock();
        let started = clock::now();
        let result = run();
        self.busy_us.fetch_add(clock::micros(clock::now() - started), Ordering::Relaxed);
        result
    }

    /// Queues a batch; a brief one, if nothing else is to be done, is given back to be
    /// [run](Self::run) at once.
    pub(super) fn push(&self, work: Work) -> Result<Option<Work>, Rejected> {
        let replica = work.replica.id();
        work.replica.check(&work.batch).ok_or(Rejected::NotReady { replica })??;
        let mut queue = self.queue.lock();
        if work.replica.is_closed() {
            return Err(Rejected::Closed { replica });
        }
        let link = work.from.id();
        if queue.of(replica).filter(|from| *from == link).count() >= MAX_BATCHES {
            return Err(Rejected::Full { replica });
        }
        let idle = queue.running.is_none() && queue.waiting.is_empty();
        if idle && work.replica.last_took().is_some_and(|took| took <= BRIEF) {
            queue.running = Some((replica, link));
            return Ok(Some(work));
        }
        queue.waiting.push_back(work);
        drop(queue);
        if idle {
            self.due.notify_one();
        }
        Ok(None)
    }

    /// Takes back a batch that has not started.
    pub(super) fn cancel(&self, link: u64, batch: u64) -> Option<Work> {
        let mut queue = self.queue.lock();
        let mine = |work: &Work| work.from.id() == link && work.batch.id == batch;
        let index = queue.waiting.iter().position(mine)?;
        let work = queue.waiting.remove(index);
        self.settled.notify_all();
        work
    }

    /// Drops the batches of a connection that has ended.
    pub(super) fn forget(&self, link: u64) {
        self.queue.lock().waiting.retain(|work| work.from.id() != link);
        self.settled.notify_all();
    }

    /// Lets `replica` take no more batches; those it has are finished.
    pub(super) fn close(&self, replica: &Replica) {
        let _queue = self.queue.lock();
        replica.closed().store(true, Ordering::Release);
        self.settled.notify_all();
    }

    pub(super) fn is_closed(&self, replica: &Replica) -> bool {
        let _queue = self.queue.lock();
        replica.is_closed()
    }

    /// Returns once `replica` is closed or its model known to be gone, or after `patience`; says
    /// whether it is closed.
    pub(super) fn wait_closed(&self, replica: &Replica, patience: Option<Duration>) -> bool {
        let mut queue = self.queue.lock();
        while !replica.is_closed() && replica.is_ready() {
            match patience {
                None => self.settled.wait(&mut queue),
                Some(patience) => {
                    if self.settled.wait_for(&mut queue, patience).timed_out() {
                        break;
                    }
                }
            }
        }
        replica.is_closed()
    }

    pub(super) fn wait_drained(&self, replica: &Replica) {
        self.wait(|queue| queue.of(replica.id()).next().is_none());
    }

    fn wait(&self, settled: impl Fn(&Queue) -> bool) {
        let mut queue: MutexGuard<'_, Queue> = self.queue.lock();
        while !settled(&queue) {
            self.settled.wait(&mut queue);
        }
    }

    /// Runs batches on this thread, for ever.
    pub(super) fn work(&self) {
        loop {
            self.run(&self.next());
        }
    }

    /// Runs the batch whose turn it is, and answers it.
    pub(super) fn run(&self, work: &Work) {
        let (waited, ended) = self.turn(|| {
            let waited_us = clock::micros(clock::now() - work.arrived);
            (waited_us, work.replica.run(&work.batch, &work.body))
        });
        // Before the reply, or a router that answers it with a batch might find no room.
        let mut queue = self.queue.lock();
        queue.running = None;
        let more = !queue.waiting.is_empty();
        drop(queue);
        if more {
            self.due.notify_one();
        }
        let (outcome, facts, body) = ended;
        let facts = Facts { waited_us: waited, ..facts };
        work.from.reply(Reply { batch: work.batch.id, outcome, facts }, &body);
        // Replicas that go on serving wait for nothing: to wake them for each batch would cost more
        // than the batch.
        if work.replica.is_closed() || !work.replica.is_ready() {
            let _queue = self.queue.lock();
            self.settled.notify_all();
        }
    }

    fn next(&self) -> Work {
        let mut queue = self.queue.lock();
        loop {
            if queue.running.is_none()
                && let Some(work) = queue.waiting.pop_front()
            {
                queue.running = Some((work.replica.id(), work.from.id()));
                return work;
            }
            self.due.wait(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests;

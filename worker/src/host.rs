//! The worker of one machine: a task per GPU that makes what is as it shall be, and tells of it.

mod adopt;
mod backoff;
mod crashes;
mod gpu;
mod lane;
mod log;
mod neighbours;
mod observe;
mod process;
mod rank;
mod report;

use std::{
    fmt,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use protocol::{Desired, GpuReport, LogPiece, Report};
use rustix::fs::{FlockOperation, flock};
use tokio::{sync::watch, task::JoinSet};

pub(crate) use self::backoff::Backoff;
use self::{
    gpu::{Keeper, Left},
    lane::{Asked, Surroundings},
};
pub use self::{process::Launch, rank::Lending};
use crate::{
    OnnxRuntime,
    gpu::{Gpu, GpuError},
    rank::{JobFolder, read_log},
};

/// How a GPU is opened; tried again for as long as it fails.
pub type Open = Arc<dyn Fn() -> Result<Box<dyn Gpu>, GpuError> + Send + Sync>;

#[derive(Clone)]
pub struct GpuSettings {
    /// As its operator calls it, `nvml:0`.
    pub source: String,
    pub open: Open,
    pub pinned: Option<Vec<String>>,
    /// What ONNX models on its slices are run by; absent, what the worker found.
    pub onnxruntime: Option<OnnxRuntime>,
}

impl fmt::Debug for GpuSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuSettings").field("source", &self.source).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{} may be entered by others (mode {mode:o}); it must be 700", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("another worker runs in {}", path.display())]
    Taken { path: PathBuf },
    #[error("cannot use {}: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },
}

/// Who leads, as far as this worker has heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Leader {
    /// The highest term that anybody claimed.
    term: u64,
    /// The conversation it was claimed in, while it goes on and the claim is repeated.
    conversation: Option<u64>,
}

/// What one GPU's task tells.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    generation: u64,
    gpu: GpuReport,
}

/// The GPUs of this machine and their executors, until it is stopped or dropped.
#[derive(Debug)]
pub struct Host {
    desired: watch::Sender<Arc<Desired>>,
    told: watch::Receiver<Vec<Option<Told>>>,
    asked: watch::Sender<Asked>,
    leaving: watch::Sender<bool>,
    leader: watch::Sender<Leader>,
    joined: watch::Sender<bool>,
    launch: Arc<Launch>,
    keepers: JoinSet<()>,
    _lock: File,
}

impl Host {
    /// Adopts what runs, and keeps every GPU as desired from then on. Returns when there is a
    /// report of all of them. Must be called within a tokio runtime.
    pub async fn start(gpus: Vec<GpuSettings>, launch: Launch) -> Result<Self, HostError> {
        let lock = take(&launch.run_dir)?;
        let failed = |source| HostError::Path { path: launch.run_dir.clone(), source };
        let mut adopted = adopt::find(&launch.run_dir).await.map_err(failed)?;
        let mut ranks = rank::find(&launch.run_dir).map_err(failed)?;
        let launch = Arc::new(launch);
        let (desired, wishes) = watch::channel(Arc::default());
        let (telling, mut told) = watch::channel(vec![None; gpus.len()]);
        let telling = Arc::new(telling);
        let (asking, asked) = watch::channel(Asked::Run);
        let (leaving, joined) = (watch::Sender::new(false), watch::Sender::new(false));
        let mut keepers = JoinSet::new();
        for (index, settings) in (0..).zip(gpus) {
            let mine = adopted.extract_if(.., |one| one.state.seat.gpu == index).collect();
            let mine = Left {
                executors: mine,
                ranks: ranks.extract_if(.., |one| one.gpu == index).collect(),
            };
            let mut around = Surroundings::new(Arc::clone(&launch), joined.subscribe());
            if let Some(own) = settings.onnxruntime.clone() {
                around.onnxruntime = Arc::new(own);
            }
            let keeper = Keeper::new(index, settings, around, Arc::clone(&telling));
            keepers.spawn(keeper.keep(wishes.clone(), asked.clone(), mine));
        }
        for stray in adopted {
            let gpu = stray.state.seat.gpu;
            let pid = stray.process.id();
            tracing::warn!(gpu, pid, "stopped executor: GPU is no longer configured");
            stray.process.kill().await;
        }
        // It cannot fail: the keepers, which hold the other end, live until told to stop.
        let _ = told.wait_for(|all| all.iter().all(Option::is_some)).await;
        let leader = watch::Sender::new(Leader::default());
        let asked = asking;
        Ok(Self { desired, told, asked, leaving, leader, joined, launch, keepers, _lock: lock })
    }

    /// Sets what shall be; one of an older generation than the last, or of a leader before the one
    /// that leads now, is ignored.
    pub fn desire(&self, desired: Desired) {
        let term = self.leader.borrow().term;
        if desired.term < term {
            let (term, current_term) = (desired.term, term);
            tracing::warn!(term, current_term, "ignored desired state from a former leader");
            return;
        }
        let order = |one: &Desired| (one.term, one.generation);
        let (newest, given) = (order(&self.desired.borrow()), order(&desired));
        if given < newest {
            let (generation, current_generation) = (given.1, newest.1);
            tracing::warn!(generation, current_generation, "ignored outdated desired state");
        } else if given > newest {
            self.desired.send_replace(Arc::new(desired));
        }
    }

    /// Hears in a conversation that its router leads in `term`; whether that can be.
    pub(crate) fn led(&self, conversation: u64, term: u64) -> bool {
        let current_term = self.leader.borrow().term;
        if term < current_term {
            tracing::warn!(term, current_term, "ignored leadership claim of a former leader");
            self.unled(conversation);
            return false;
        }
        let leader = Leader { term, conversation: Some(conversation) };
        self.leader.send_if_modified(|before| std::mem::replace(before, leader) != leader);
        self.joined.send_if_modified(|joined| !std::mem::replace(joined, true));
        true
    }

    /// Hears in a conversation that its router does not lead, or no more of it.
    pub(crate) fn unled(&self, conversation: u64) {
        let gone = self.leader.send_if_modified(|leader| {
            leader.conversation.take_if(|with| *with == conversation).is_some()
        });
        if gone {
            self.joined.send_replace(false);
        }
    }

    pub fn report(&self) -> Report {
        let told = self.told.borrow();
        let all = || told.iter().flatten();
        Report {
            term: self.leader.borrow().term,
            generation: all().map(|one| one.generation).min().unwrap_or(0),
            leaving: *self.leaving.borrow(),
            lends: self.launch.lending.borrow().is_some(),
            address: self.launch.listen,
            gpus: all().map(|one| one.gpu.clone()).collect(),
        }
    }

    /// Returns when the report may have changed since it was last asked for.
    pub fn changes(&self) -> Changes {
        Changes {
            told: self.told.clone(),
            leaving: self.leaving.subscribe(),
            leader: self.leader.subscribe(),
            lending: self.launch.lending.subscribe(),
        }
    }

    pub fn read_log(&self, job: u64, rank: u32, from: Option<u64>, most: u32) -> Option<LogPiece> {
        let lending = self.launch.lending.borrow().clone()?;
        let folder = JobFolder::of(&lending.directory, job).rank(rank);
        folder.is_dir().then(|| read_log(&folder, from, most))
    }

    /// Asks the router that leads to place everything elsewhere, and returns when nothing is left here, or
    /// there is nobody to ask.
    pub async fn leave(&self) {
        self.leaving.send_replace(true);
        let (mut changes, mut joined) = (self.changes(), self.joined.subscribe());
        let is_empty = |report: &Report| {
            let mut slices = report.gpus.iter().flat_map(|gpu| &gpu.slices);
            slices.all(|slice| slice.replicas.is_empty() && slice.rank.is_none())
        };
        while !is_empty(&self.report()) {
            tokio::select! {
                () = changes.next() => {}
                _ = joined.wait_for(|joined| !*joined) => return,
            }
        }
    }

    pub async fn stop(self) {
        self.end(Asked::Stop).await;
    }

    /// Ends as [`Host::stop`] does, but leaves executors and jobs at work for another worker, which
    /// must come within a minute.
    pub async fn leave_running(self) {
        self.end(Asked::Leave).await;
    }

    async fn end(mut self, how: Asked) {
        self.asked.send_replace(how);
        while self.keepers.join_next().await.is_some() {}
    }
}

#[derive(Debug)]
pub struct Changes {
    told: watch::Receiver<Vec<Option<Told>>>,
    leaving: watch::Receiver<bool>,
    leader: watch::Receiver<Leader>,
    lending: watch::Receiver<Option<Lending>>,
}

impl Changes {
    pub async fn next(&mut self) {
        let changed = tokio::select! {
            changed = self.told.changed() => changed,
            changed = self.leaving.changed() => changed,
            changed = self.leader.changed() => changed,
            changed = self.lending.changed() => changed,
        };
        if changed.is_err() {
            // The worker is stopping, and nothing will change any more.
            std::future::pending().await
        }
    }
}

/// Makes `path` a directory for this user alone and for this worker alone.
fn take(path: &Path) -> Result<File, HostError> {
    let failed = |source| HostError::Path { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(HostError::Open { path: path.to_owned(), mode });
    }
    let lock = File::create(path.join("worker.lock")).map_err(failed)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(HostError::Taken { path: path.to_owned() }),
        Err(error) => Err(failed(error.into())),
    }
}

#[cfg(test)]
mod tests;

//! The worker of one machine: a task per GPU that makes what is as it shall be, and tells of it.

mod adopt;
mod backoff;
mod gpu;
mod lane;
mod log;
mod neighbours;
mod process;
mod rank;
mod report;
mod sight;

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
    lane::Surroundings,
};
pub use self::{process::Launch, rank::Lending};
use crate::{
    gpu::{Gpu, GpuError},
    rank::{JobFolder, read_log},
};

/// How a GPU is opened; tried again for as long as it fails.
pub type Open = Arc<dyn Fn() -> Result<Box<dyn Gpu>, GpuError> + Send + Sync>;

/// One GPU of this machine.
#[derive(Clone)]
pub struct GpuSettings {
    /// As its operator calls it, `nvml:0`.
    pub source: String,
    /// How to open it.
    pub open: Open,
    /// How its operator wants it cut, if at all.
    pub pinned: Option<Vec<String>>,
}

impl fmt::Debug for GpuSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuSettings").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Why a worker could not start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Others could get at the executors' sockets.
    #[error("{} may be entered by others (mode {mode:o}); it must be 700", path.display())]
    Open {
        /// The run directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another worker has the directory.
    #[error("another worker runs in {}", path.display())]
    Taken {
        /// The run directory.
        path: PathBuf,
    },
    /// The directory cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Path {
        /// The run directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
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
    stopping: watch::Sender<bool>,
    leaving: watch::Sender<bool>,
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
        let (stopping, asked) = watch::channel(false);
        let (leaving, joined) = (watch::Sender::new(false), watch::Sender::new(false));
        let mut keepers = JoinSet::new();
        for (index, settings) in (0..).zip(gpus) {
            let mine = adopted.extract_if(.., |one| one.state.seat.gpu == index).collect();
            let mine = Left {
                executors: mine,
                ranks: ranks.extract_if(.., |one| one.gpu == index).collect(),
            };
            let around = Surroundings::new(Arc::clone(&launch), joined.subscribe());
            let keeper = Keeper::new(index, settings, around, Arc::clone(&telling));
            keepers.spawn(keeper.keep(wishes.clone(), asked.clone(), mine));
        }
        for stray in adopted {
            let gpu = stray.state.seat.gpu;
            tracing::warn!(
                gpu,
                pid = stray.process.id(),
                "executor of a GPU that is no more; ended"
            );
            stray.process.kill().await;
        }
        // It cannot fail: the keepers, which hold the other end, live until told to stop.
        let _ = told.wait_for(|all| all.iter().all(Option::is_some)).await;
        Ok(Self { desired, told, stopping, leaving, joined, launch, keepers, _lock: lock })
    }

    /// Sets what shall be; one of an older generation than the last is ignored.
    pub fn desire(&self, desired: Desired) {
        let (newest, given) = (self.desired.borrow().generation, desired.generation);
        if given < newest {
            tracing::warn!(given, newest, "a stale wish was ignored");
        } else if given > newest {
            self.desired.send_replace(Arc::new(desired));
        }
    }

    /// What is.
    pub fn report(&self) -> Report {
        let told = self.told.borrow();
        let all = || told.iter().flatten();
        Report {
            generation: all().map(|one| one.generation).min().unwrap_or(0),
            leaving: *self.leaving.borrow(),
            lends: self.launch.lending.is_some(),
            address: self.launch.listen,
            gpus: all().map(|one| one.gpu.clone()).collect(),
        }
    }

    /// Returns when the report may have changed since it was last asked for.
    pub fn changes(&self) -> Changes {
        Changes { told: self.told.clone(), leaving: self.leaving.subscribe() }
    }

    /// What a rank of a job printed here, if this worker ever had it.
    pub fn read_log(&self, job: u64, rank: u32, from: Option<u64>, most: u32) -> Option<LogPiece> {
        let lending = self.launch.lending.as_ref()?;
        let folder = JobFolder::of(&lending.directory, job).rank(rank);
        folder.is_dir().then(|| read_log(&folder, from, most))
    }

    /// Says whether there is a router that hears the reports.
    pub(crate) fn set_joined(&self, joined: bool) {
        self.joined.send_replace(joined);
    }

    /// Asks the router to place everything elsewhere, and returns when nothing is left here, or
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

    /// Ends every executor and returns when they are gone.
    pub async fn stop(mut self) {
        self.stopping.send_replace(true);
        while self.keepers.join_next().await.is_some() {}
    }
}

/// Who waits for changes.
#[derive(Debug)]
pub struct Changes {
    told: watch::Receiver<Vec<Option<Told>>>,
    leaving: watch::Receiver<bool>,
}

impl Changes {
    /// Returns when the report may have changed since the last time.
    pub async fn next(&mut self) {
        let changed = tokio::select! {
            changed = self.told.changed() => changed,
            changed = self.leaving.changed() => changed,
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

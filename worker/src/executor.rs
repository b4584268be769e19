//! The process that owns one slice: it takes orders on stdin, gives notices on stdout, and runs the
//! batches that routers send to its socket.
//!
//! It is made of plain blocking threads, since each has one thing to wait for and a hop costs more
//! than a thread: one reads orders, one accepts, one per connection reads frames, one per replica
//! runs batches and writes their replies itself.
//!
//! When stdin ends, the worker is gone and the process exits at once, so no executor outlives its
//! worker. (The kernel's parent-death signal would not do: it follows the thread that forked, and
//! an asynchronous worker has no thread of its own.)

mod link;
mod listen;
mod replica;
mod warm;

use std::{
    collections::HashMap,
    io::{self, BufRead, Read, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    thread,
};

use parking_lot::{Mutex, RwLock};
use protocol::{Engine, MAX_LINE, ModelSpec, Notice, Order};

use self::replica::Replica;
use crate::{clock, supervise::backoff::Backoff};

/// What an executor is told on its command line.
#[derive(Clone, Debug)]
pub struct ExecutorArgs {
    /// The label of the slice it owns.
    pub slice: String,
    /// The directory of its socket, which nobody else may enter.
    pub run_dir: PathBuf,
    /// Listen on a free TCP port of the loopback interface instead of a Unix socket.
    pub tcp: bool,
    /// The program that has the subcommand `guard`: this one, as a rule.
    pub program: PathBuf,
}

/// The body of `sluice executor`; returns when the worker says so or is gone.
pub fn run_executor(args: &ExecutorArgs) -> ExitCode {
    match serve(args, io::stdin().lock(), io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(slice = args.slice, %error, "executor cannot go on");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutorError {
    #[error("cannot listen: {0}")]
    Listen(#[from] listen::ListenError),
    #[error("cannot read orders: {0}")]
    Read(#[source] io::Error),
    #[error("an order is longer than {MAX_LINE} bytes")]
    TooLong,
    #[error("cannot understand an order: {0}")]
    Order(#[source] serde_json::Error),
    #[error("told to listen twice")]
    Twice,
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// What the executor's threads share.
struct Executor {
    slice: String,
    program: PathBuf,
    notices: Notices,
    replicas: RwLock<HashMap<u32, Arc<Replica>>>,
    /// Held while a model loads and warms, so that models do not disturb each other's measurements.
    loading: Mutex<()>,
}

/// Carries out `orders` until one says stop or there are no more.
pub(crate) fn serve(
    args: &ExecutorArgs,
    mut orders: impl BufRead,
    notices: impl Write + Send + 'static,
) -> Result<(), ExecutorError> {
    let executor = Arc::new(Executor {
        slice: args.slice.clone(),
        program: args.program.clone(),
        notices: Notices(Mutex::new(Box::new(notices))),
        replicas: RwLock::default(),
        loading: Mutex::new(()),
    });
    let mut bound = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = MAX_LINE as u64 + 1;
        orders.by_ref().take(limit).read_until(b'\n', &mut line).map_err(ExecutorError::Read)?;
        if line.len() > MAX_LINE {
            return Err(ExecutorError::TooLong);
        }
        if line.is_empty() {
            return Ok(());
        }
        match serde_json::from_slice(&line).map_err(ExecutorError::Order)? {
            Order::Listen { .. } if bound.is_some() => return Err(ExecutorError::Twice),
            Order::Listen { token } => {
                let listening = bound.insert(listen::start(args, token, &executor)?);
                let address = listening.address.clone();
                executor.notices.give(&Notice::Listening { address });
            }
            Order::Load { replica, spec } => executor.load(replica, spec)?,
            Order::Unload { replica } => executor.unload(replica),
            Order::Stop => return Ok(()),
        }
    }
}

impl Executor {
    fn load(self: &Arc<Self>, id: u32, spec: ModelSpec) -> Result<(), ExecutorError> {
        let replica = Arc::new(Replica::new(id));
        let mut replicas = self.replicas.write();
        if replicas.contains_key(&id) {
            tracing::warn!(replica = id, "replica is loaded already; order ignored");
            return Ok(());
        }
        replicas.insert(id, Arc::clone(&replica));
        drop(replicas);
        let executor = Arc::clone(self);
        thread::Builder::new()
            .name(format!("replica-{id}"))
            .spawn(move || executor.live(&replica, &spec))
            .map_err(ExecutorError::Thread)?;
        Ok(())
    }

    /// A replica's whole life, on its own thread.
    fn live(&self, replica: &Replica, spec: &ModelSpec) {
        let (id, model) = (replica.id(), &spec.name);
        let mut backoff = Backoff::new();
        let last = loop {
            let started = clock::now();
            let Err(reason) = self.live_once(replica, spec) else {
                break Notice::Unloaded { replica: id };
            };
            // A file that cannot be loaded stays so; a server may do better next time.
            if !matches!(spec.engine, Engine::Server(_)) {
                tracing::error!(replica = id, model, reason, "model not loaded");
                break Notice::Failed { replica: id, reason };
            }
            let wait = backoff.after(clock::now() - started);
            tracing::warn!(
                replica = id,
                model,
                reason,
                ?wait,
                "server lost; it will be started again"
            );
            self.notices.give(&Notice::Lost { replica: id, reason });
            if replica.closed_within(wait) {
                break Notice::Unloaded { replica: id };
            }
        };
        self.replicas.write().remove(&id);
        self.notices.give(&last);
    }

    /// From loading a model to its unloading, or to why there is none.
    fn live_once(&self, replica: &Replica, spec: &ModelSpec) -> Result<(), String> {
        let loading = self.loading.lock();
        let warm = warm::bring_up(replica.id(), spec, &self.program, &self.notices)?;
        drop(loading);
        replica.open(warm.ready);
        self.notices.give(&warm.notice);
        replica.work(warm.engine).map_err(|lost| lost.whole())
    }

    fn unload(&self, id: u32) {
        match self.replica(id) {
            Some(replica) => replica.close(),
            None => tracing::warn!(replica = id, "no such replica; order ignored"),
        }
    }

    fn replica(&self, id: u32) -> Option<Arc<Replica>> {
        self.replicas.read().get(&id).cloned()
    }

    fn every_replica(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().values().cloned().collect()
    }
}

/// The way back to the worker.
struct Notices(Mutex<Box<dyn Write + Send>>);

impl Notices {
    fn give(&self, notice: &Notice) {
        let mut line =
            serde_json::to_vec(notice).expect("a notice has only strings for keys, and no maps");
        line.push(b'\n');
        let mut out = self.0.lock();
        if let Err(error) = out.write_all(&line).and_then(|()| out.flush()) {
            // The end of stdin will say the same, and end the process.
            tracing::warn!(%error, "the worker does not listen");
        }
    }
}

#[cfg(test)]
mod tests;

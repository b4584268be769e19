//! The process that is one lane of a slice: it takes orders on a control socket, says there what it
//! has, and runs the batches that routers send to its other socket, one at a time.
//!
//! It is made of plain blocking threads, since each has one thing to wait for and a hop costs more
//! than a thread: one reads orders, one accepts, one per connection reads frames, one runs batches
//! and writes their replies itself, and one per replica brings it up and later waits for its end.
//!
//! It outlives its worker by as long as it was told to, so that a worker that is started again
//! finds it at work. (The kernel's parent-death signal would not do, even where it shall not outlive
//! it: it follows the thread that forked, and an asynchronous worker has no thread of its own.)

mod control;
mod lane;
mod link;
mod listen;
mod replica;
mod secure;
mod warm;

use std::{
    collections::BTreeMap, io, net::IpAddr, path::PathBuf, process::ExitCode, sync::Arc, thread,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use protocol::{
    Engine, ExecutorId, ExecutorState, LoadedReplica, ModelSpec, Notice, ReadyReplica,
    ReplicaState, VERSION,
};

pub(crate) use self::warm::try_out;
use self::{control::Worker, lane::Lane, listen::ListenError, replica::Replica, warm::Warm};
use crate::{
    engine::{CHANGED, Lost, Surroundings},
    executor_paths,
};

#[derive(Clone, Debug)]
pub struct ExecutorArgs {
    pub seat: ExecutorId,
    pub slice: String,
    /// The device it may use, as its worker names it.
    pub device: Option<String>,
    /// The directory of its sockets, which nobody else may enter.
    pub run_dir: PathBuf,
    /// Listen on a free TCP port of this address instead of a Unix socket.
    pub listen: Option<IpAddr>,
    pub certificate: Option<tls::Identity>,
    /// How long it waits for another worker when its own is gone.
    pub orphan_wait: Duration,
    pub surroundings: Surroundings,
}

pub fn run_executor(args: ExecutorArgs) -> ExitCode {
    let slice = args.slice.clone();
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(slice, %error, "executor failed");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutorError {
    #[error("cannot listen: {0}")]
    Listen(#[from] ListenError),
    #[error("cannot wait for a worker: {0}")]
    Control(#[source] io::Error),
    #[error("cannot make a token: {0}")]
    Token(#[source] io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

struct Executor {
    args: ExecutorArgs,
    address: String,
    token: String,
    lane: Lane,
    held: RwLock<BTreeMap<u32, Held>>,
    worker: Worker,
    /// Held while a model loads and warms, so that models do not disturb each other's measurements.
    loading: Mutex<()>,
}

/// A replica, and what the worker is told of it.
struct Held {
    replica: Arc<Replica>,
    model: String,
    version: String,
    memory_mib: u64,
    digest: u64,
    state: ReplicaState,
}

pub(crate) fn serve(args: ExecutorArgs) -> Result<(), ExecutorError> {
    let token = executor_paths::token().map_err(ExecutorError::Token)?;
    let (listener, bound) = listen::bind(&args)?;
    let (orders, _control) = listen::bind_control(&args)?;
    let executor = Arc::new(Executor {
        args,
        address: bound.address.clone(),
        token,
        lane: Lane::default(),
        held: RwLock::default(),
        worker: Worker::default(),
        loading: Mutex::new(()),
    });
    let at_work = Arc::clone(&executor);
    spawn("lane", move || at_work.lane.work())?;
    let accepting = Arc::clone(&executor);
    spawn("accept", move || listen::accept(&listener, &accepting))?;
    control::attend(&executor, &orders)
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), ExecutorError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map(drop).map_err(ExecutorError::Thread)
}

impl Executor {
    fn state(&self) -> ExecutorState {
        let held = self.held.read();
        let replicas = held.iter().map(|(id, held)| LoadedReplica {
            replica: *id,
            model: held.model.clone(),
            version: held.version.clone(),
            memory_mib: held.memory_mib,
            digest: held.digest,
            state: held.state.clone(),
        });
        ExecutorState {
            version: VERSION,
            seat: self.args.seat.clone(),
            slice: self.args.slice.clone(),
            pid: std::process::id(),
            device: self.args.device.clone(),
            busy_us: self.lane.busy_us(),
            replicas: replicas.collect(),
        }
    }

    fn announce(&self) {
        self.worker.tell(|| Notice::State(Box::new(self.state())));
    }

    fn load(self: &Arc<Self>, id: u32, digest: u64, spec: ModelSpec) -> Result<(), ExecutorError> {
        let replica = Arc::new(Replica::new(id));
        let mut all = self.held.write();
        let there = all.get(&id).map(|held| &held.state);
        if there.is_some_and(|state| !matches!(state, ReplicaState::Failed { .. })) {
            return Ok(());
        }
        let held = Held {
            replica: Arc::clone(&replica),
            model: spec.name.clone(),
            version: spec.version.clone(),
            memory_mib: spec.memory_mib,
            digest,
            state: ReplicaState::Starting,
        };
        all.insert(id, held);
        drop(all);
        self.announce();
        let executor = Arc::clone(self);
        spawn(&format!("replica-{id}"), move || executor.live(&replica, &spec))
    }

    /// A replica's whole life, on its own thread.
    ///
    /// One that fails stays to be seen, until its worker has it loaded again or dropped.
    fn live(&self, replica: &Replica, spec: &ModelSpec) {
        let id = replica.id();
        let loading = self.loading.lock();
        self.set(id, ReplicaState::Loading);
        let mut warming = |batch| self.set(id, ReplicaState::Warming { batch });
        let loaded = warm::bring_up(spec, &self.args.surroundings, &self.lane, &mut warming);
        drop(loading);
        // A file that cannot be loaded stays so; a server may do better next time, and so may one that
        // was being written.
        let may_return =
            |reason: &str| matches!(spec.engine, Engine::Server(_)) || reason.starts_with(CHANGED);
        let failed = match loaded {
            Ok(_) | Err(_) if self.lane.is_closed(replica) => None,
            Ok(warm) => self.serve(replica, warm).err().map(|lost| (lost.whole(), true)),
            Err(reason) => {
                let crashed = may_return(&reason);
                Some((reason, crashed))
            }
        };
        if let Some((reason, crashed)) = failed {
            tracing::error!(replica = id, model = spec.name, reason, "model failed to load or run");
            self.set(id, ReplicaState::Failed { reason, crashed });
            return;
        }
        self.held.write().remove(&id);
        self.announce();
    }

    /// From a warm model to its unloading, or to its loss.
    fn serve(&self, replica: &Replica, warm: Warm) -> Result<(), Lost> {
        let id = replica.id();
        let look_every = warm.engine.look_every();
        replica.open(warm.engine, warm.ready);
        replica.pace(self.lane.pace());
        let (address, token) = (self.address.clone(), self.token.clone());
        let ready = ReadyReplica { address, token, ..warm.told };
        self.set(id, ReplicaState::Ready(Box::new(ready)));
        while !self.lane.wait_closed(replica, look_every) {
            replica.look()?;
        }
        self.set(id, ReplicaState::Draining);
        self.lane.wait_drained(replica);
        replica.retire();
        Ok(())
    }

    fn set(&self, id: u32, state: ReplicaState) {
        if let Some(held) = self.held.write().get_mut(&id) {
            held.state = state;
        }
        self.announce();
    }

    /// One that failed is forgotten; one that is still loading goes once it is loaded.
    fn unload(&self, id: u32) {
        let mut all = self.held.write();
        let Some(held) = all.get(&id) else { return };
        if matches!(held.state, ReplicaState::Failed { .. }) {
            all.remove(&id);
            drop(all);
            self.announce();
        } else {
            self.lane.close(&held.replica);
        }
    }

    /// Slows down every model that only pretends to work, those still to come included.
    fn pace(&self, factor: f64) {
        self.lane.set_pace(factor);
        for held in self.held.read().values() {
            held.replica.pace(factor);
        }
    }

    fn replica(&self, id: u32) -> Option<Arc<Replica>> {
        self.held.read().get(&id).map(|held| Arc::clone(&held.replica))
    }
}

#[cfg(test)]
mod tests;

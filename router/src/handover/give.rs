//! The running router's side of a handover.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use control::plane::DataPlane;
use parking_lot::Mutex;
use policy::fleet::Link;
use serve::{
    doors::oip::ServerState,
    drain::{Drain, Phase},
};
use tokio::{
    net::UnixListener,
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::{interval, sleep},
};

use super::{
    message::{FromNew, FromOld, Frozen, Hello, Offer, common},
    socket::{self, Bound, Channel, SocketError},
};
use crate::registry::Registry;

/// How long a successor may take to say who it is, and to answer the last word.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long it may take to connect to the replicas.
const ATTACH_WAIT: Duration = Duration::from_secs(60);
/// How long nothing may be planned here, while it takes over.
const FROZEN_WAIT: Duration = Duration::from_secs(20);
/// How often a process that ends says what it has counted.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// The wait before a store is tried again that the successor still has.
const REOPEN_WAIT: Duration = Duration::from_millis(20);

/// What is asked of the worker in this process, if there is one.
#[derive(Debug)]
pub enum WorkerCall {
    /// Leave the executors and jobs to another worker.
    Leave(oneshot::Sender<()>),
    /// Adopt them again.
    Return(oneshot::Sender<()>),
}

/// What a running router needs to be replaced.
#[derive(Debug)]
pub struct Giving {
    /// Where it listens for its successor; absent, it cannot be replaced.
    pub socket: Option<PathBuf>,
    /// What runs: `up` or `router`.
    pub command: String,
    /// The program's version, for people.
    pub program: String,
    /// A directory that is removed when this process ends, unless a successor has it.
    pub run_dir: Option<PathBuf>,
    pub worker: Option<mpsc::Sender<WorkerCall>>,
}

/// What a scrape shows now.
pub(crate) struct Page(pub(crate) Box<dyn Fn() -> String + Send + Sync>);

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct Giver {
    pub(crate) giving: Giving,
    /// By name; let go once another process accepts.
    listeners: Mutex<Vec<(&'static str, OwnedFd)>>,
    state: Arc<ServerState<Registry>>,
    page: Page,
    /// The way to the process that serves in place of this one.
    successor: Mutex<Option<Channel>>,
    /// Whether control is with a successor that does not accept yet.
    pub(crate) frozen: watch::Sender<bool>,
}

#[derive(Debug, thiserror::Error)]
enum NotGiven {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("{0}")]
    Refused(String),
    #[error("the new process said {0:?} out of turn")]
    OutOfTurn(Box<FromNew>),
    #[error("this process was told to stop")]
    Stopping,
}

impl Giver {
    pub(crate) fn new(
        giving: Giving,
        state: &Arc<ServerState<Registry>>,
        page: Page,
        listeners: Vec<(&'static str, OwnedFd)>,
    ) -> Self {
        Self {
            giving,
            listeners: Mutex::new(listeners),
            state: Arc::clone(state),
            page,
            successor: Mutex::new(None),
            frozen: watch::Sender::new(false),
        }
    }

    /// Returns once a successor accepts in place of this process; never, if none can come.
    pub(crate) async fn run(&self) {
        // One that replaces another is not replaced itself before it accepts.
        let _ = self.drain().accepting().wait_for(|accepting| *accepting).await;
        let Some((listener, bound)) = self.listen() else { return std::future::pending().await };
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a handover connection");
                    sleep(ANSWER_WAIT).await;
                    continue;
                }
            };
            let given = match Channel::over(stream) {
                Ok(channel) => self.give(channel).await,
                Err(error) => Err(error.into()),
            };
            match given {
                Ok(()) => return bound.leave(),
                Err(error) => tracing::warn!(%error, "handover failed; this process keeps serving"),
            }
        }
    }

    fn listen(&self) -> Option<(UnixListener, Bound)> {
        let path = self.giving.socket.as_ref()?;
        let listener = socket::listen(path);
        let failed = |error: &io::Error| {
            let path = path.display();
            tracing::info!(%path, %error, "cannot listen for a successor; --replace will not work");
        };
        let listener = listener.inspect_err(failed).ok()?;
        Some((listener, Bound::at(path)))
    }

    async fn give(&self, mut channel: Channel) -> Result<(), NotGiven> {
        let message = channel.hear(ANSWER_WAIT).await?;
        let FromNew::Hello(hello) = message else { return Err(out_of_turn(message)) };
        let offer = match self.answer(&hello) {
            Ok(offer) => offer,
            Err(why) => {
                channel.say(&FromOld::Refused { why: why.clone() }).await?;
                return Err(NotGiven::Refused(why));
            }
        };
        tracing::info!(program = hello.program, "handover began");
        channel.say(&FromOld::Offer(Box::new(offer))).await?;
        let copies = self.copies().map_err(SocketError::from)?;
        let descriptors: Vec<_> = copies.iter().map(AsFd::as_fd).collect();
        channel.pass(&descriptors).await?;
        expect(&mut channel, &FromNew::Attached, ATTACH_WAIT).await?;
        let frozen = self.freeze().await;
        let given = self.hand_over(&mut channel, frozen).await;
        match &given {
            Ok(()) => {
                self.listeners.lock().clear();
                *self.successor.lock() = Some(channel);
            }
            Err(error) => {
                // So that it does not accept in the meantime.
                drop(channel);
                tracing::warn!(%error, "the new process failed; taking control back");
                self.drain().accept(true);
                self.thaw().await;
            }
        }
        self.frozen.send_replace(false);
        given
    }

    /// Tells the successor what is counted here, now and then, until `ended` and once more.
    pub(crate) async fn count_until<T>(&self, ended: impl Future<Output = T>) -> T {
        let channel = self.successor.lock().take();
        let Some(mut channel) = channel else { return ended.await };
        let mut ended = pin!(ended);
        let mut ticks = interval(COUNT_EVERY);
        let result = loop {
            tokio::select! {
                result = ended.as_mut() => break result,
                // One that is gone itself needs no counts.
                _ = ticks.tick() => drop(channel.say(&self.counts()).await),
            }
        };
        drop(channel.say(&self.counts()).await);
        result
    }

    fn counts(&self) -> FromOld {
        FromOld::Counts { page: (self.page.0)() }
    }

    fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        self.listeners.lock().iter().map(|(_, fd)| fd.try_clone()).collect()
    }

    fn state_dir(&self) -> Option<PathBuf> {
        self.state.settings.load().state_dir.clone()
    }

    fn drain(&self) -> &Drain {
        &self.state.drain
    }

    fn answer(&self, hello: &Hello) -> Result<Offer, String> {
        let version = common(&hello.versions);
        let version = version.ok_or_else(|| {
            let (theirs, ours) = (&hello.versions, super::message::VERSIONS);
            format!("it speaks versions {theirs:?} of the handover, the running one {ours:?}")
        })?;
        if hello.command != self.giving.command {
            let (theirs, ours) = (&hello.command, &self.giving.command);
            return Err(format!("`sluice {theirs}` cannot replace `sluice {ours}`"));
        }
        if self.drain().is_draining() {
            return Err("the running one is stopping".to_owned());
        }
        if self.state.backend.config_in_force().etcd.is_some() {
            let why = "routers that share an etcd are not replaced on the spot; restart them one \
                       after the other, as docs/upgrading.md says";
            return Err(why.to_owned());
        }
        let listeners = self.listeners.lock();
        let mut offer = Offer {
            version,
            program: self.giving.program.clone(),
            listeners: listeners.iter().map(|(name, _)| (*name).to_owned()).collect(),
            run_dir: self.giving.run_dir.clone(),
            workers: self.state.backend.fleet().reports(),
            ..Offer::default()
        };
        drop(listeners);
        for (id, link) in self.state.backend.plane().replicas() {
            if matches!(link, Link::InRotation { .. }) {
                offer.serving.entry(id.worker).or_default().push(id.replica);
            }
        }
        for (id, rows) in self.state.backend.plane().connections().batch_limits() {
            offer.batch_limits.entry(id.worker).or_default().push((id.replica, rows));
        }
        Ok(offer)
    }

    /// Gives control out of hand, and nothing else: requests are served as before.
    async fn freeze(&self) -> Frozen {
        self.frozen.send_replace(true);
        let control = Arc::clone(self.state.backend.control());
        control.pause().begin().await;
        control.fleet().speak(false);
        self.call(WorkerCall::Leave).await;
        let released = spawn_blocking(move || Frozen {
            jobs: control.jobs().release(),
            orders: control.orders().release(),
            learned: control.learned().release(),
        });
        released.await.unwrap_or_default()
    }

    async fn hand_over(&self, channel: &mut Channel, frozen: Frozen) -> Result<(), NotGiven> {
        // Without a file, this process is the only one that has it until the other one serves.
        let mut phase = self.drain().watch();
        channel.say(&FromOld::Frozen(Box::new(frozen.clone()))).await?;
        let ready = tokio::select! {
            ready = expect(channel, &FromNew::Ready, FROZEN_WAIT) => ready,
            _ = phase.wait_for(|phase| *phase > Phase::Serving) => Err(NotGiven::Stopping),
        };
        let accepting = match ready {
            Ok(()) => {
                self.drain().accept(false);
                self.go(channel).await
            }
            Err(error) => Err(error),
        };
        if accepting.is_err() {
            self.keep(&frozen);
        }
        accepting
    }

    /// Lets the successor accept, and hears that it does.
    async fn go(&self, channel: &mut Channel) -> Result<(), NotGiven> {
        channel.say(&self.counts()).await?;
        channel.say(&FromOld::Go).await?;
        expect(channel, &FromNew::Accepting, ANSWER_WAIT).await
    }

    /// Has what no file has at hand again.
    fn keep(&self, frozen: &Frozen) {
        let control = self.state.backend.control();
        let Frozen { jobs, orders, learned } = frozen;
        let opened = [
            jobs.as_ref().map(|records| control.jobs().reopen(None, Some(records))),
            orders.as_ref().map(|records| control.orders().reopen(None, Some(records))),
            learned.as_ref().map(|memory| control.learned().reopen(None, Some(memory))),
        ];
        debug_assert!(opened.iter().flatten().all(Result::is_ok), "nothing is opened");
    }

    /// Takes control back from a successor that failed.
    async fn thaw(&self) {
        let control = Arc::clone(self.state.backend.control());
        if self.state_dir().is_some() {
            self.reopen().await;
        }
        // Before the worker in this process is back: it dials once, and would be hung up on.
        control.fleet().speak(true);
        self.call(WorkerCall::Return).await;
        control.pause().end();
        tracing::info!("took control back; serving continues");
    }

    /// Opens the stores, as soon as the successor has let go of them.
    async fn reopen(&self) {
        let mut complained = false;
        loop {
            let (control, state_dir) = (Arc::clone(self.state.backend.control()), self.state_dir());
            let opened = spawn_blocking(move || {
                let state_dir = state_dir.as_deref();
                control.jobs().reopen(state_dir, None)?;
                control.orders().reopen(state_dir, None)?;
                control.learned().reopen(state_dir, None)
            });
            match opened.await {
                Ok(Ok(())) => return,
                Ok(Err(error)) if !complained => {
                    complained = true;
                    tracing::warn!(%error, "cannot open the state again; retrying");
                }
                Ok(Err(_)) | Err(_) => {}
            }
            sleep(REOPEN_WAIT).await;
        }
    }

    /// Asks the worker in this process for something, and waits until it is done.
    async fn call(&self, call: impl FnOnce(oneshot::Sender<()>) -> WorkerCall) {
        let Some(worker) = &self.giving.worker else { return };
        let (done, answer) = oneshot::channel();
        if worker.send(call(done)).await.is_ok() {
            // A worker that is gone has nothing to leave.
            let _ = answer.await;
        }
    }
}

async fn expect(channel: &mut Channel, expected: &FromNew, wait: Duration) -> Result<(), NotGiven> {
    let message = channel.hear(wait).await?;
    if message == *expected { Ok(()) } else { Err(out_of_turn(message)) }
}

fn out_of_turn(message: FromNew) -> NotGiven {
    NotGiven::OutOfTurn(Box::new(message))
}

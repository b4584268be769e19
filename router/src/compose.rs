//! The router as a whole: both listeners, the loops behind them, and an orderly end.

mod succession;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use config::Config;
use rustix::process::Signal;
use serde_json::json;
use serve::{
    auth::Access,
    clock::wall_s,
    count,
    doors::oip::{self, ServerState, backend::Backend},
    drain::{Drain, StopSignal, Times, stop_signals},
};
use store::OpenError;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
    time::{interval, sleep},
};

use self::succession::Listeners;
use crate::{
    admin::{self, Admin, Hooks},
    bind::{BindError, Port},
    election::{Candidacy, Election, Ground},
    fleet::{self, Fleet, LOCAL, Trust},
    handover::{
        give::{Giver, Giving, Page},
        take::{TakeError, Taken},
    },
    metrics::{self, Carried},
    observe,
    office::Office,
    registry::Registry,
    reload::{self, Asked, reload},
    round,
    state::{self, State},
    steer, takeover,
};

pub use crate::registry::Started;
pub use serve::{drain::Ended, trace::Build};

/// How often the files of models that could not be loaded are looked at.
const MEND_EVERY: Duration = Duration::from_secs(2);
/// How long after one look a router that can serve nothing looks again.
const READY_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Router {
    state: Arc<ServerState<Registry>>,
    inference: SocketAddr,
    admin: SocketAddr,
    join: Option<SocketAddr>,
    signals: mpsc::Receiver<StopSignal>,
    stop_admin: oneshot::Sender<()>,
    admin_task: JoinHandle<()>,
    served: JoinHandle<()>,
    election: Option<(Arc<Election>, JoinSet<()>)>,
    giver: Giver,
    taken: Option<Taken>,
    carried: Arc<Carried>,
}

/// Takes in the worker of this process.
#[derive(Clone, Debug)]
pub struct LocalDoor(Arc<Fleet>);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Listen(#[from] BindError),
    /// What is kept in the state directory cannot be used.
    #[error("cannot use what is kept in state_dir")]
    State(#[from] OpenError),
    /// The router to be replaced did not hand over.
    #[error("cannot replace the running router")]
    Take(#[from] TakeError),
    /// The system would not give a timer or a signal handler.
    #[error("cannot start")]
    System(#[from] io::Error),
}

#[derive(Debug)]
pub struct Start {
    pub config: Config,
    /// The file it came from, to be read again on reload.
    pub file: Option<PathBuf>,
    /// What workers of other machines must know to join, if they may.
    pub token: Option<String>,
    pub build: Build,
    /// How the next process will replace this one.
    pub giving: Giving,
    /// What the process before this one gave, if this one replaces it.
    pub taken: Option<Taken>,
}

impl Router {
    /// Listens on both addresses and starts every loop. Must be called inside a runtime.
    ///
    /// A router that replaces another accepts nothing and plans nothing before [`Router::take_over`].
    pub async fn start(start: Start) -> Result<Self, StartError> {
        let Start { config, file, token, build, giving, mut taken } = start;
        let (tracing, tls) = (config.tracing.clone(), config.tls.clone());
        let signals = stop_signals()?;
        let settings = config.router.clone();
        let mut listeners = Listeners { taken: taken.as_mut(), copies: Vec::new() };
        let inference = listeners.bind(Port::Inference, settings.listen).await?;
        let admin_listener = listeners.bind(Port::Admin, settings.admin_listen).await?;
        let (inference_at, admin_at) = (inference.local_addr()?, admin_listener.local_addr()?);
        let door = match (settings.join_listen, token) {
            (Some(address), Some(token)) => {
                Some((listeners.bind(Port::Join, address).await?, token))
            }
            (Some(_) | None, _) => None,
        };
        let join_at = door.as_ref().map(|(listener, _)| listener.local_addr()).transpose()?;
        let listeners = listeners.copies;
        let access = Access::new(&config.tenants, &config.keys);
        let ground = config.etcd.as_ref().map(|etcd| Ground::new(etcd, admin_at));
        let state_dir = settings.state_dir.clone();
        let stored = succession::stored(ground.as_ref(), state_dir.as_deref(), taken.is_some())?;
        let registry = Registry::start(config, stored)?;
        let fleet = Arc::clone(registry.fleet());
        let state = Arc::new(ServerState::new(registry, settings, access, Arc::default()));
        reload::secure(&state, tls);
        if let Some(taken) = &mut taken {
            succession::begin(&state, state_dir.as_deref(), taken).await?;
        }
        reload::trace(&state, tracing.as_ref(), &build);
        state.backend.loaded(true, wall_s());
        if let Some((listener, token)) = door {
            let shared = Arc::clone(&state);
            let tls = move || shared.tls.load().as_ref().map(|tls| Arc::clone(&tls.join));
            tokio::spawn(fleet::listen(listener, Trust::Token(token.into()), fleet, tls));
        }
        let control = state.backend.control();
        let election = ground.map(|ground| stand(ground, &state));
        tokio::spawn(follow_orders(Arc::clone(&state)));
        tokio::spawn(follow_readiness(Arc::clone(&state)));
        tokio::spawn(round::run(Arc::downgrade(control)));
        tokio::spawn(take_counts(Arc::clone(&state)));
        tokio::spawn(drain_histograms(Arc::clone(&state)));
        tokio::spawn(observe::run(Arc::clone(&state), build.clone()));
        outlive_file_limits()?;
        reload_on_hangup(Arc::clone(&state), file.clone(), build.clone())?;
        let served = tokio::spawn(oip::serve(inference, Arc::clone(&state)));
        let carried = Arc::default();
        let page = page_of(&state, &build, &carried);
        let giver = Giver::new(giving, &state, page, listeners);
        let (stop_admin, stopped) = oneshot::channel();
        let admin = Arc::new(Admin::new(Arc::clone(&state), hooks(&state, file, build, &carried)));
        let admin_task = tokio::spawn(admin::serve(admin_listener, admin, stopped));
        Ok(Self {
            state,
            inference: inference_at,
            admin: admin_at,
            join: join_at,
            signals,
            stop_admin,
            admin_task,
            served,
            election,
            giver,
            taken,
            carried,
        })
    }

    /// Whether this router replaces another and does not accept yet.
    pub fn replaces(&self) -> bool {
        self.taken.is_some()
    }

    /// Accepts in place of the router before, once it has planned with what that one knew.
    pub fn take_over(&mut self) -> impl Future<Output = Result<(), TakeError>> + use<> {
        let (state, taken) = (Arc::clone(&self.state), self.taken.take());
        let carried = Arc::clone(&self.carried);
        async move {
            let Some(mut taken) = taken else { return Ok(()) };
            let pause = state.backend.control().pause();
            pause.end();
            pause.one_round().await;
            taken.ready(&carried).await?;
            state.drain.accept(true);
            taken.accepting().await?;
            // The one before was, with the same replicas.
            state.backend.become_ready();
            tokio::spawn(async move { taken.last_counts(&carried).await });
            Ok(())
        }
    }

    /// `https`, or `http` without `[tls]`.
    pub fn scheme(&self) -> &'static str {
        if self.state.tls.load().is_some() { "https" } else { "http" }
    }

    pub fn inference(&self) -> SocketAddr {
        self.inference
    }

    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub fn join(&self) -> Option<SocketAddr> {
        self.join
    }

    /// Where a worker in this process comes in.
    pub fn local_door(&self) -> LocalDoor {
        LocalDoor(Arc::clone(self.state.backend.fleet()))
    }

    /// Returns how this router is ready for the first time, or with why it never will be, unless
    /// something changes.
    pub fn warm(&self) -> impl Future<Output = Result<Started, String>> + use<> {
        let state = Arc::clone(&self.state);
        async move { state.backend.warm().await }
    }

    /// Tells `apply` of the configuration in force each time that it may have become another.
    pub fn follow(&self, mut apply: impl FnMut(&Config) + Send + 'static) {
        let state = Arc::clone(&self.state);
        let mut reconfigured = state.backend.reconfigured();
        tokio::spawn(async move {
            while reconfigured.changed().await.is_ok() {
                apply(&state.backend.config_in_force());
            }
        });
    }

    /// Serves until told to stop or replaced, then drains.
    pub async fn run(mut self) -> Finish {
        let drain: &Drain = &self.state.drain;
        let times = || {
            let settings = self.state.settings.load();
            Times { delay: settings.drain_delay, timeout: settings.drain_timeout }
        };
        let mut frozen = self.giver.frozen.subscribe();
        let mut giving = std::pin::pin!(self.giver.run());
        let stopped = tokio::select! {
            ended = drain.run(&mut self.signals, times, &mut self.served) => Some(ended),
            () = giving.as_mut() => None,
        };
        let (ended, replaced) = match stopped {
            // What a successor has of control is taken back, to be ended in order.
            Some(ended) => tokio::select! {
                () = giving => (ended, true),
                _ = frozen.wait_for(|frozen| !frozen) => (ended, false),
            },
            None => {
                let timeout = times().timeout;
                let drained = drain.hand_over(&mut self.signals, timeout, &mut self.served);
                (self.giver.count_until(drained).await, true)
            }
        };
        if let Some((election, tasks)) = self.election {
            drop(tasks);
            election.resign().await;
        }
        self.state.backend.fleet().close();
        self.state.backend.plane().connections().close();
        let tracer = self.state.tracer.swap(None);
        if let Some(tracer) = tracer {
            tracer.close().await;
        }
        let _ = self.stop_admin.send(());
        let _ = self.admin_task.await;
        Finish { ended, replaced }
    }
}

/// How a router came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    pub ended: Ended,
    /// Whether another process serves in its place, with all it had.
    pub replaced: bool,
}

impl LocalDoor {
    /// Whether the router speaks with workers, and not its successor.
    pub fn is_open(&self) -> bool {
        self.0.speaks()
    }

    /// Speaks with a worker in this process over `stream`, until either hangs up.
    pub fn welcome(&self, stream: impl AsyncRead + AsyncWrite + Send + 'static) {
        let fleet = Arc::clone(&self.0);
        tokio::spawn(async move { fleet::welcome(stream, LOCAL, &Trust::Everyone, &fleet).await });
    }
}

fn stand(ground: Ground, state: &Arc<ServerState<Registry>>) -> (Arc<Election>, JoinSet<()>) {
    let control = state.backend.control();
    let (plane, fleet) = (Arc::clone(control.plane()), Arc::clone(control.fleet()));
    let Candidacy { election, mut tasks, events } = ground.stand(plane, fleet);
    tasks.spawn(takeover::run(Arc::clone(control), events));
    (election, tasks)
}

/// Puts what the leader was ordered in force at this router too: models that are not to be served, and
/// objectives. A router alone has its own objectives.
async fn follow_orders(state: Arc<ServerState<Registry>>) {
    let mut orders = state.backend.orders().changed();
    loop {
        state.backend.take_orders();
        if orders.changed().await.is_err() {
            return;
        }
        if !state.backend.orders().are_shared() {
            continue;
        }
        let state = Arc::clone(&state);
        let _ = tokio::task::spawn_blocking(move || reload::aim(&state.backend)).await;
    }
}

/// Notes when this router is ready for the first time, and from the start whether replicas are in reach.
async fn follow_readiness(state: Arc<ServerState<Registry>>) {
    let first = async {
        while state.backend.warm().await.is_err() {
            sleep(READY_AGAIN).await;
        }
    };
    let mending = async {
        let mut ticks = interval(MEND_EVERY);
        loop {
            ticks.tick().await;
            state.backend.mend().await;
        }
    };
    tokio::join!(first, state.backend.follow_links(), mending);
}

fn hooks(
    state: &Arc<ServerState<Registry>>,
    file: Option<PathBuf>,
    build: Build,
    carried: &Arc<Carried>,
) -> Hooks {
    let metrics = page_of(state, &build, carried).0;
    let [shown, joined, past, happened, reloading, steered, ordered] =
        [(); 7].map(|()| Arc::clone(state));
    let [for_reload, for_steering] = [(); 2].map(|()| build.clone());
    Hooks {
        jobs: Some(Arc::new(Office::new(Arc::clone(state.backend.control())))),
        metrics,
        state: Box::new(move || {
            serde_json::to_value(State::read(&shown, &build)).unwrap_or_default()
        }),
        workers: Box::new(move || json!({ "workers": state::workers(&joined.backend) })),
        history: Box::new(move || serde_json::to_value(past.backend.history()).unwrap_or_default()),
        events: Box::new(move |after| {
            serde_json::to_value(happened.backend.events().after(after)).unwrap_or_default()
        }),
        reload: Box::new(move |asked| {
            let (state, file) = (Arc::clone(&reloading), file.clone());
            let build = for_reload.clone();
            Box::pin(async move { reload(&state, file, &build, asked).await })
        }),
        objective: Box::new(move |asked| {
            let (state, build) = (Arc::clone(&steered), for_steering.clone());
            Box::pin(async move { reload::objective(&state, &build, asked).await })
        }),
        order: Box::new(move |order| {
            let state = Arc::clone(&ordered);
            Box::pin(async move { steer::order(&state, order).await })
        }),
    }
}

/// The page of metrics, with what the processes before this one counted.
fn page_of(state: &Arc<ServerState<Registry>>, build: &Build, carried: &Arc<Carried>) -> Page {
    let (state, build, carried) = (Arc::clone(state), build.clone(), Arc::clone(carried));
    Page(Box::new(move || carried.add_to(metrics_page(&state, &build))))
}

fn metrics_page(shared: &ServerState<Registry>, build: &Build) -> String {
    let models = shared.backend.models();
    let counted: Vec<_> = models.iter().map(|model| model.dispatcher().metrics()).collect();
    metrics::write(&State::of(shared, build, &models), &counted)
}

/// Has a file that may not grow be an error of whoever writes, as a full disk is, and not the end.
fn outlive_file_limits() -> io::Result<()> {
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}

fn reload_on_hangup(
    state: Arc<ServerState<Registry>>,
    file: Option<PathBuf>,
    build: Build,
) -> io::Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let _ = reload(&state, file.clone(), &build, Asked::default()).await;
        }
    });
    Ok(())
}

async fn take_counts(state: Arc<ServerState<Registry>>) {
    let mut ticks = interval(count::recent::EVERY);
    loop {
        ticks.tick().await;
        state.backend.take_counts();
    }
}

/// A histogram holds its samples until it is drained, whether or not anybody scrapes.
async fn drain_histograms(state: Arc<ServerState<Registry>>) {
    let mut ticks = interval(count::DRAIN_EVERY);
    loop {
        ticks.tick().await;
        let state = Arc::clone(&state);
        // Some ten thousand samples at a time: not between two requests.
        let _ = tokio::task::spawn_blocking(move || state.backend.drain_histograms()).await;
    }
}

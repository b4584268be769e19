//! The task that keeps one lane's executor alive.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use protocol::{ExecutorState, Notice, Order};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

use super::{
    backoff::Backoff,
    crashes::Crashes,
    log::Log,
    process::{Control, ControlError, Ending, Identity, Launch, Process},
};
use crate::{
    OnnxRuntime, executor_paths,
    gpu::{Gpu, GpuError, Lease},
};

const LISTEN_WAIT: Duration = Duration::from_secs(10);

/// How often an executor says something at the least, and how often it may miss that. What is missed is
/// counted one by one, so that a worker that was itself held up does not blame an executor for it.
const TICK: Duration = Duration::from_secs(1);
const MISSES: u32 = 10;

/// Orders that may wait to be sent; more would be repetitions.
const ORDERS: usize = 64;

/// How long an executor that is left to another worker waits for it.
const NEXT_WORKER_WAIT: Duration = Duration::from_secs(60);

/// What is asked of the task of a lane, or of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Run,
    /// End, and the executors too.
    Stop,
    /// End, and leave the executors to another worker.
    Leave,
}

pub(super) type Shared = Arc<Mutex<Option<Box<dyn Gpu>>>>;

#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) launch: Arc<Launch>,
    pub(super) onnxruntime: Arc<OnnxRuntime>,
    pub(super) gpu: Shared,
    /// Whether there is a router that hears the reports.
    pub(super) joined: watch::Receiver<bool>,
    pub(super) news: Arc<Notify>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Status {
    pub(super) pid: Option<u32>,
    pub(super) restarts: u32,
    pub(super) state: Option<ExecutorState>,
    /// Whether it is of another program than this worker, an earlier one as a rule.
    pub(super) aged: bool,
    /// Why there is no executor.
    pub(super) trouble: Option<String>,
}

/// A lane; dropping it kills its executor.
pub(super) struct Lane {
    orders: mpsc::Sender<Order>,
    asked: watch::Sender<Asked>,
    status: watch::Receiver<Status>,
    crashes: Arc<Mutex<Crashes>>,
    task: JoinHandle<()>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) struct Adopted {
    pub(super) process: Process,
    pub(super) control: Control,
    pub(super) state: ExecutorState,
}

impl Surroundings {
    pub(super) fn new(launch: Arc<Launch>, joined: watch::Receiver<bool>) -> Self {
        let onnxruntime = Arc::new(launch.onnxruntime.clone());
        let (gpu, news) = (Shared::default(), Arc::new(Notify::new()));
        Self { launch, onnxruntime, gpu, joined, news }
    }

    /// Marks the slice with `device` as used, for as long as the lease lives.
    pub(super) async fn lease(&self, device: Option<String>) -> Result<Option<Lease>, GpuError> {
        let Some(device) = device else { return Ok(None) };
        let gpu = Arc::clone(&self.gpu);
        let leased = tokio::task::spawn_blocking(move || {
            gpu.lock().as_ref().map(|gpu| gpu.lease(&device)).transpose()
        });
        leased.await.unwrap_or(Ok(None))
    }
}

impl Lane {
    pub(super) fn start(identity: Identity, around: Surroundings) -> Self {
        Self::spawn(identity, around, None)
    }

    pub(super) fn adopt(identity: Identity, around: Surroundings, adopted: Adopted) -> Self {
        Self::spawn(identity, around, Some(adopted))
    }

    fn spawn(identity: Identity, around: Surroundings, adopted: Option<Adopted>) -> Self {
        let first = adopted.as_ref().map_or_else(Status::default, |adopted| Status {
            pid: Some(adopted.process.id()),
            state: Some(adopted.state.clone()),
            aged: adopted.process.is_other_program(),
            ..Status::default()
        });
        let (status_tx, status) = watch::channel(first);
        let (orders, inbox) = mpsc::channel(ORDERS);
        let (asking, asked) = watch::channel(Asked::Run);
        let crashes: Arc<Mutex<Crashes>> = Arc::default();
        let counted = Arc::clone(&crashes);
        let keeper = Keeper { identity, around, inbox, asked, status: status_tx, crashes: counted };
        Self { orders, asked: asking, status, crashes, task: tokio::spawn(keeper.keep(adopted)) }
    }

    /// Passes an order on. Lost if too many wait: whoever gives it looks again, and repeats it.
    pub(super) fn order(&self, order: Order) {
        let _ = self.orders.try_send(order);
    }

    pub(super) fn stop(&self) {
        self.asked.send_replace(Asked::Stop);
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.asked.borrow() == Asked::Stop
    }

    pub(super) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Stops it and returns when its executor is gone, or leaves that to another worker.
    pub(super) async fn end(mut self, how: Asked) {
        self.asked.send_replace(how);
        // Only a panic of its own could keep it from ending, and that ends it too.
        let _ = (&mut self.task).await;
    }

    /// The models that end its executor when they load.
    pub(super) fn crashes(&self) -> MutexGuard<'_, Crashes> {
        self.crashes.lock()
    }

    pub(super) fn status(&self) -> Status {
        self.status.borrow().clone()
    }
}

struct Keeper {
    identity: Identity,
    around: Surroundings,
    inbox: mpsc::Receiver<Order>,
    asked: watch::Receiver<Asked>,
    status: watch::Sender<Status>,
    crashes: Arc<Mutex<Crashes>>,
}

#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("stopped by the worker")]
    Stopped,
    #[error("left to another worker")]
    Left,
    #[error("slice not to be had: {0}")]
    NoSlice(#[from] GpuError),
    #[error("executor not started: {0}")]
    NotStarted(#[from] io::Error),
    #[error("executor did not listen within {LISTEN_WAIT:?}")]
    Silent,
    #[error("executor hangs: it said nothing for {MISSES} s")]
    Hung,
    #[error("executor lost: {0}")]
    Lost(#[from] ControlError),
    #[error("executor ended: {}", .0.how)]
    Exited(Ending),
}

impl Keeper {
    async fn keep(mut self, mut adopted: Option<Adopted>) {
        let launch = Arc::clone(&self.around.launch);
        let mut backoff = Backoff::default();
        let mut log = None;
        loop {
            let started = Instant::now();
            let ended = self.live(&mut log, adopted.take()).await;
            match ended {
                Ended::Stopped => break,
                Ended::Left => return,
                Ended::NoSlice(_)
                | Ended::NotStarted(_)
                | Ended::Silent
                | Ended::Hung
                | Ended::Lost(_)
                | Ended::Exited(_) => {}
            }
            self.blame(&ended);
            let reason = ended.to_string();
            let wait = backoff.after(started.elapsed());
            let slice = &self.identity.slice;
            let retry_in_ms = wait.as_millis() as u64;
            tracing::warn!(slice, reason, retry_in_ms, "executor lost; restarting");
            self.tell(|status| {
                let restarts = status.restarts.saturating_add(1);
                *status = Status { restarts, trouble: Some(reason), ..Status::default() };
            });
            tokio::select! {
                () = sleep(wait) => {}
                _ = asked(&mut self.asked) => break,
            }
        }
        if let Some(log) = log {
            Log::close(log).await;
        }
        for kind in [executor_paths::CONTROL, "sock"] {
            // An executor that was killed has left them.
            let _ = std::fs::remove_file(launch.path(&self.identity, kind));
        }
        self.around.news.notify_one();
    }

    fn blame(&self, ended: &Ended) {
        if let (Ended::Exited(Ending { how, crashed: true }), Some(state)) =
            (ended, &self.status.borrow().state)
        {
            self.crashes.lock().count(state, how);
        }
    }

    fn tell(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_modify(change);
        self.around.news.notify_one();
    }

    /// One executor from its start to its end, with its slice leased.
    async fn live(&mut self, log: &mut Option<Log>, adopted: Option<Adopted>) -> Ended {
        let _lease = match self.around.lease(self.identity.device.clone()).await {
            Ok(lease) => lease,
            Err(error) => {
                if let Some(adopted) = adopted {
                    adopted.process.kill().await;
                }
                return error.into();
            }
        };
        if log.is_none() {
            let path = self.around.launch.path(&self.identity, executor_paths::LOG);
            match Log::relay(path, &self.identity.slice) {
                Ok(relayed) => *log = Some(relayed),
                Err(error) => return error.into(),
            }
        }
        let (mut process, mut control) = match (adopted, &*log) {
            (Some(Adopted { process, control, .. }), _) => (process, Some(control)),
            (None, Some(log)) => {
                let (launch, runtime) = (&self.around.launch, &self.around.onnxruntime);
                match log.end().and_then(|end| launch.start(&self.identity, runtime, end)) {
                    Ok(process) => (process, None),
                    Err(error) => return error.into(),
                }
            }
            (None, None) => return io::Error::other("no log").into(),
        };
        let pid = process.id();
        let slice = &self.identity.slice;
        match control {
            Some(_) => tracing::info!(slice, pid, "executor adopted"),
            None => tracing::info!(slice, pid, "executor started"),
        }
        let ended = match self.attend(&mut process, &mut control).await {
            Err(ended) => ended,
            Ok(never) => match never {},
        };
        if let (Ended::Stopped, Some(control)) = (&ended, &mut control) {
            // If it cannot be told, it will be killed.
            let _ = timeout(LISTEN_WAIT, control.order(&Order::Stop)).await;
        }
        if let (Ended::Left, Some(control)) = (&ended, &mut control) {
            let wait_ms = NEXT_WORKER_WAIT.as_millis() as u64;
            // One that cannot be told waits as long as it does for any worker.
            let _ = timeout(LISTEN_WAIT, control.order(&Order::Await { wait_ms })).await;
        }
        match ended {
            Ended::Lost(_) => Ended::Exited(process.end().await),
            Ended::Stopped => {
                process.end().await;
                Ended::Stopped
            }
            Ended::Left => {
                process.spare();
                Ended::Left
            }
            Ended::Hung
            | Ended::Silent
            | Ended::Exited(_)
            | Ended::NotStarted(_)
            | Ended::NoSlice(_) => {
                process.kill().await;
                ended
            }
        }
    }

    /// Connects, then passes orders one way and states the other until something ends it.
    async fn attend(
        &mut self,
        process: &mut Process,
        connected: &mut Option<Control>,
    ) -> Result<Infallible, Ended> {
        let pid = process.id();
        if connected.is_none() {
            self.tell(|status| {
                *status = Status { pid: Some(pid), restarts: status.restarts, ..Status::default() };
            });
            let path = self.around.launch.path(&self.identity, executor_paths::CONTROL);
            *connected = tokio::select! {
                control = Control::await_connect(&path) => Some(control),
                how = process.ended() => return Err(Ended::Exited(how)),
                () = sleep(LISTEN_WAIT) => return Err(Ended::Silent),
                // Nobody else could find one that does not listen yet.
                _ = asked(&mut self.asked) => return Err(Ended::Stopped),
            };
        }
        let Some(control) = connected else { return Err(Ended::Silent) };
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut missed = 0;
        loop {
            tokio::select! {
                // What it said is heard before it is called silent.
                biased;
                asked = asked(&mut self.asked) => return Err(match asked {
                    Asked::Leave => Ended::Left,
                    Asked::Run | Asked::Stop => Ended::Stopped,
                }),
                notice = control.next() => {
                    missed = 0;
                    self.hear(notice?);
                }
                Some(order) = self.inbox.recv() => {
                    let given = timeout(LISTEN_WAIT, control.order(&order)).await;
                    given.map_err(|_| Ended::Hung)??;
                }
                _ = ticks.tick() => {
                    missed += 1;
                    if missed > MISSES {
                        return Err(Ended::Hung);
                    }
                }
            }
        }
    }

    fn hear(&self, notice: Notice) {
        match notice {
            // It was greeted when it was found.
            Notice::Hello { .. } => {}
            Notice::State(state) => {
                self.crashes.lock().hear(&state);
                if self.status.borrow().state.as_ref() != Some(&*state) {
                    self.tell(|status| status.state = Some(*state));
                }
            }
            Notice::Busy { busy_us } => {
                let busy = |status: &Status| status.state.as_ref().map(|state| state.busy_us);
                if busy(&self.status.borrow()) == Some(busy_us) {
                    return;
                }
                self.tell(|status| {
                    if let Some(state) = &mut status.state {
                        state.busy_us = busy_us;
                    }
                });
            }
        }
    }
}

async fn asked(asked: &mut watch::Receiver<Asked>) -> Asked {
    let end = asked.wait_for(|asked| *asked != Asked::Run).await;
    // An error means that the lane was dropped, which asks for its end.
    end.map_or(Asked::Stop, |asked| *asked)
}

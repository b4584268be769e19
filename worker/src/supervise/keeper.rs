//! The task that keeps one slice's executor alive.

use std::{io, process::Stdio, time::Duration};

use protocol::{MAX_LINE, Notice, Order, Report};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    MakeCommand, SlicePlan,
    backoff::Backoff,
    lines::{Allowance, Lines},
    state::State,
};

/// How long an executor may take to read its orders and listen; loading models comes after.
const LISTEN_WAIT: Duration = Duration::from_secs(10);

/// How long an executor may take to stop before it is killed.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// The longest line of an executor's log that is kept, in bytes.
const MAX_LOG_LINE: usize = 4 << 10;

/// The most lines of an executor's log that are kept each second.
const LOG_LINES_PER_SECOND: u32 = 200;

/// One slice, its plan, and what is known of it.
pub(super) struct Keeper {
    pub(super) plan: SlicePlan,
    pub(super) state: State,
    pub(super) command: MakeCommand,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) reported: Option<Report>,
    pub(super) stopping: watch::Receiver<bool>,
}

#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("told to stop")]
    Stopped,
    #[error("executor not started: {0}")]
    NotStarted(#[source] io::Error),
    #[error("executor did not listen within {LISTEN_WAIT:?}")]
    Silent,
    #[error("executor said what cannot be understood: {0}")]
    Gibberish(String),
    #[error("executor ended: {0}")]
    Exited(String),
}

/// A running executor and the ways to it.
struct Executor {
    child: Child,
    orders: ChildStdin,
    notices: Lines<ChildStdout>,
}

impl Keeper {
    /// Runs executors, one after another, until told to stop.
    pub(super) async fn keep(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let started = Instant::now();
            let ended = self.run().await;
            if matches!(ended, Ended::Stopped) {
                return;
            }
            let reason = ended.to_string();
            self.state.ended(&reason);
            let wait = backoff.after(started.elapsed());
            let slice = self.state.slice();
            tracing::warn!(slice, reason, ?wait, "executor lost; it will be started again");
            self.report().await;
            tokio::select! {
                () = sleep(wait) => {}
                () = stop_asked(&mut self.stopping) => return,
            }
        }
    }

    async fn run(&mut self) -> Ended {
        let mut executor = match self.launch() {
            Ok(executor) => executor,
            Err(error) => return Ended::NotStarted(error),
        };
        let pid = executor.child.id();
        let ended = match self.attend(&mut executor).await {
            Err(ended) => ended,
            Ok(never) => match never {},
        };
        if matches!(ended, Ended::Stopped) {
            // If it cannot be told, it will be killed.
            let _ = timeout(STOP_WAIT, order(&mut executor.orders, &[Order::Stop])).await;
        }
        if matches!(ended, Ended::Stopped | Ended::Exited(_)) {
            // Time to end by itself; whether it did is seen below.
            let _ = timeout(STOP_WAIT, executor.child.wait()).await;
        }
        end_group(pid);
        let status = executor.child.wait().await;
        match (ended, status) {
            (Ended::Exited(_), Ok(status)) => Ended::Exited(status.to_string()),
            (ended, _) => ended,
        }
    }

    fn launch(&mut self) -> io::Result<Executor> {
        let mut command = (self.command)(&self.plan, self.state.slice());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).kill_on_drop(true).spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let orders = child.stdin.take().ok_or_else(missing)?;
        let notices = Lines::new(child.stdout.take().ok_or_else(missing)?, MAX_LINE);
        let log = child.stderr.take().ok_or_else(missing)?;
        self.state.started(child.id(), token()?);
        tokio::spawn(relay(log, self.state.slice().to_owned()));
        let slice = self.state.slice();
        tracing::info!(slice, pid = child.id(), "executor started");
        Ok(Executor { child, orders, notices })
    }

    /// Gives the orders, then hears notices until something ends it.
    async fn attend(&mut self, executor: &mut Executor) -> Result<std::convert::Infallible, Ended> {
        let listen_by = Instant::now() + LISTEN_WAIT;
        self.report().await;
        let orders = self.orders();
        timeout_at(listen_by, order(&mut executor.orders, &orders))
            .await
            .map_err(|_| Ended::Silent)?
            .map_err(|error| Ended::Exited(error.to_string()))?;
        loop {
            let line = tokio::select! {
                line = executor.notices.next() => line,
                () = stop_asked(&mut self.stopping) => return Err(Ended::Stopped),
                () = tokio::time::sleep_until(listen_by), if !self.state.is_listening() => {
                    return Err(Ended::Silent);
                }
            };
            let line = line.map_err(|error| Ended::Exited(error.to_string()))?;
            let line = line.ok_or_else(|| Ended::Exited("it closed its output".to_owned()))?;
            let notice: Notice = serde_json::from_slice(&line.bytes)
                .map_err(|error| Ended::Gibberish(error.to_string()))?;
            self.state.hear(notice);
            self.report().await;
        }
    }

    fn orders(&self) -> Vec<Order> {
        let loads = self
            .plan
            .replicas
            .iter()
            .map(|(replica, spec)| Order::Load { replica: *replica, spec: spec.clone() });
        let listen = Order::Listen { token: self.state.token().to_owned() };
        std::iter::once(listen).chain(loads).collect()
    }

    /// Tells the router, if there is news. A router that is gone needs none.
    async fn report(&mut self) {
        if self.reported.as_ref() == Some(self.state.report()) {
            return;
        }
        let report = self.state.report().clone();
        self.reported = Some(report.clone());
        tokio::select! {
            _ = self.reports.send(report) => {}
            () = stop_asked(&mut self.stopping) => {}
        }
    }
}

async fn stop_asked(stopping: &mut watch::Receiver<bool>) {
    // An error means that the worker was dropped, which asks for the same.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

async fn order(stdin: &mut ChildStdin, orders: &[Order]) -> io::Result<()> {
    let mut lines = Vec::new();
    for order in orders {
        serde_json::to_writer(&mut lines, order)?;
        lines.push(b'\n');
    }
    stdin.write_all(&lines).await?;
    stdin.flush().await
}

/// Kills whatever the executor started and left behind, and the executor if it is still there.
fn end_group(pid: Option<u32>) {
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(pid) = pid {
        // It fails if nobody is left, which is what is wanted.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// A secret nobody can guess.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled < bytes.len() {
        return Err(io::Error::other("the system has too little randomness"));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Puts an executor's log into ours.
async fn relay(log: ChildStderr, slice: String) {
    let mut lines = Lines::new(log, MAX_LOG_LINE);
    let mut allowance = Allowance::new(LOG_LINES_PER_SECOND, Instant::now());
    while let Ok(Some(line)) = lines.next().await {
        let (passes, dropped) = allowance.pass(Instant::now());
        if dropped > 0 {
            tracing::warn!(slice, dropped, "executor said too much; lines dropped");
        }
        if passes {
            let text = String::from_utf8_lossy(&line.bytes);
            tracing::info!(slice, %text, cut = line.cut, "executor said");
        }
    }
}

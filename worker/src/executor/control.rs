//! The worker's side of an executor: orders in, states out.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use protocol::{JOIN_VERSION, KNOCK, MAX_LINE, Notice, OLDEST, Order, SPOKEN};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Executor, ExecutorError};
use crate::clock;

/// The least time the worker that started an executor has to call.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// How often a worker is told how long the executor has been at work, by which it knows that it lives.
const TICK: Duration = Duration::from_secs(1);

/// In every such tick of this number it is told everything, though nothing changed: what went astray
/// is made good.
const WHOLE_EVERY: u32 = 5;

/// How long a worker may leave a notice unread before it is given up.
const WRITE_WAIT: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Worker(Mutex<Option<Listener>>);

/// The worker that is connected, and the version it is spoken to in.
struct Listener {
    stream: UnixStream,
    version: u16,
}

impl Worker {
    /// Tells the worker; what `notice` makes is no older than what was told before.
    pub(super) fn tell(&self, notice: impl FnOnce() -> Notice) {
        let mut worker = self.0.lock();
        let Some(Listener { stream, version }) = worker.as_mut() else { return };
        let line = protocol::line(&notice(), *version);
        let Some(line) = line.expect("a notice has no maps, hence no bad keys") else { return };
        if let Err(error) = stream.write_all(&line) {
            tracing::warn!(%error, "worker stopped reading; closed control connection");
            hang_up(stream);
            *worker = None;
        }
    }

    /// Speaks this version from now on, if it is one of ours.
    fn speak(&self, version: u16) {
        if let Some(worker) = self.0.lock().as_mut().filter(|_| SPOKEN.contains(&version)) {
            worker.version = version;
        }
    }

    /// Answers a worker that knocked, as none of version 3 does.
    fn greet(&self) {
        self.speak(JOIN_VERSION);
        self.tell(|| Notice::Hello { versions: SPOKEN.to_vec() });
    }
}

enum End {
    Stop,
    Alone,
    /// Another worker was announced to come within this time.
    Left(Duration),
}

/// Carries out the orders of one worker after another, until one says stop or none comes.
pub(super) fn attend(
    executor: &Arc<Executor>,
    listener: &UnixListener,
) -> Result<(), ExecutorError> {
    let mut patience = executor.args.orphan_wait.max(FIRST_WAIT);
    // Until then another worker is to come, though one may fail and leave it to the next.
    let mut awaited = clock::now();
    while let Some(stream) = accept(listener, patience).map_err(ExecutorError::Control)? {
        match converse(executor, &stream)? {
            End::Stop => return Ok(()),
            End::Alone => {}
            End::Left(wait) => awaited = clock::now() + wait,
        }
        let left = awaited.saturating_duration_since(clock::now());
        patience = executor.args.orphan_wait.max(left);
    }
    let waited_ms = patience.as_millis() as u64;
    tracing::warn!(waited_ms, "no worker connected; stopping executor");
    Ok(())
}

fn accept(listener: &UnixListener, patience: Duration) -> io::Result<Option<UnixStream>> {
    let limit = Timespec::try_from(patience).map_err(io::Error::other)?;
    let mut waiting = [PollFd::new(listener, PollFlags::IN)];
    loop {
        match poll(&mut waiting, Some(&limit)) {
            Ok(0) => return Ok(None),
            Ok(_) => return listener.accept().map(|(stream, _)| Some(stream)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn converse(executor: &Arc<Executor>, stream: &UnixStream) -> Result<End, ExecutorError> {
    let set = stream
        .set_read_timeout(Some(TICK))
        .and_then(|()| stream.set_write_timeout(Some(WRITE_WAIT)))
        .and_then(|()| stream.try_clone());
    let heard = match set {
        Ok(writer) => {
            *executor.worker.0.lock() = Some(Listener { stream: writer, version: OLDEST });
            executor.announce();
            listen(executor, stream)
        }
        Err(error) => {
            tracing::warn!(%error, "failed to set up control connection");
            Ok(End::Alone)
        }
    };
    *executor.worker.0.lock() = None;
    hang_up(stream);
    heard
}

fn listen(executor: &Arc<Executor>, stream: &UnixStream) -> Result<End, ExecutorError> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    let (mut told_at, mut ticks) = (clock::now(), 0_u32);
    loop {
        if told_at.elapsed() >= TICK {
            (told_at, ticks) = (clock::now(), ticks.wrapping_add(1));
            if ticks.is_multiple_of(WHOLE_EVERY) {
                executor.announce();
            } else {
                let busy_us = executor.lane.busy_us();
                executor.worker.tell(|| Notice::Busy { busy_us });
            }
        }
        let room = (MAX_LINE + 1 - line.len()) as u64;
        match reader.by_ref().take(room).read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {
                match protocol::read(&line) {
                    Ok(Some(Order::Stop)) => return Ok(End::Stop),
                    Ok(Some(Order::Await { wait_ms })) => {
                        return Ok(End::Left(Duration::from_millis(wait_ms)));
                    }
                    Ok(Some(order)) => obey(executor, order)?,
                    Ok(None) => {
                        let line = String::from_utf8_lossy(&line[..line.len().min(80)]);
                        tracing::warn!(%line, "ignored command of a later version");
                    }
                    Err(error) => {
                        tracing::error!(%error, "invalid command from worker; closed control connection");
                        return Ok(End::Alone);
                    }
                }
                line.clear();
            }
            Ok(_) if line.len() > MAX_LINE => {
                tracing::error!(
                    limit = MAX_LINE,
                    "command from worker too long; closed control connection"
                );
                return Ok(End::Alone);
            }
            Ok(_) => return Ok(End::Alone),
            Err(error) if is_tick(&error) => {}
            Err(error) => {
                tracing::debug!(%error, "lost control connection to worker");
                return Ok(End::Alone);
            }
        }
    }
}

fn obey(executor: &Arc<Executor>, order: Order) -> Result<(), ExecutorError> {
    match order {
        Order::Load { replica, digest, spec } => executor.load(replica, digest, *spec)?,
        Order::Unload { replica: KNOCK } => executor.worker.greet(),
        Order::Unload { replica } => executor.unload(replica),
        Order::Pace { factor } => executor.pace(factor),
        Order::Speak { version } => {
            executor.worker.speak(version);
            executor.announce();
        }
        Order::Stop | Order::Await { .. } => {}
    }
    Ok(())
}

fn is_tick(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn hang_up(stream: &UnixStream) {
    // It is closed already, or it is closed now.
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

//! The worker's side of a router: dial, say who we are, then tell what is and hear what shall be.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    task::Poll,
    time::Duration,
};

use protocol::{FromWorker, MAX_MESSAGE, OLDEST, SPOKEN, ToWorker, line, read};
use tls::{Identity, TlsError};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, split},
    net::TcpStream,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};

use tokio_rustls::TlsConnector;

use crate::{
    host::{Backoff, Host},
    lines::Lines,
};

const WAIT: Duration = Duration::from_secs(5);

const TICK: Duration = Duration::from_secs(1);

/// How long a router may be silent; it says something each second.
const SILENCE: Duration = Duration::from_secs(10);

/// The longest wait before a router is dialled again: until it is joined, it has no replicas.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The most bytes of a log that are sent at once.
const MAX_PIECE: u32 = 256 << 10;

#[derive(Clone, Debug)]
pub struct Door {
    pub routers: Vec<String>,
    /// What only workers of the fleet know.
    pub token: String,
    pub name: String,
    /// How routers are known; absent, they are spoken to plainly.
    pub tls: Option<DoorTls>,
}

/// Whom to trust to be a router, and who we say we are.
#[derive(Clone, Debug)]
pub struct DoorTls {
    pub ca: PathBuf,
    /// Our own certificate, for routers that ask for one.
    pub identity: Option<Identity>,
}

#[derive(Debug, thiserror::Error)]
pub enum Parted {
    #[error("the connection to the router failed: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the router hung up")]
    Closed,
    #[error("the router refused us: {reason}")]
    Refused { reason: String },
    #[error("the router was silent for {0:?}")]
    Silent(Duration),
    #[error(
        "the router speaks version {theirs}, which was not offered; this worker speaks {SPOKEN:?}"
    )]
    Version { theirs: u16 },
    #[error("the router said what cannot be understood: {0}")]
    Gibberish(#[from] serde_json::Error),
}

pub async fn join(door: &Door, host: &Host) -> Infallible {
    let conversations = door.routers.iter().map(|router| join_one(router, door, host));
    let mut conversations: Vec<_> = conversations.map(Box::pin).collect();
    poll_fn(|context| {
        for conversation in &mut conversations {
            match conversation.as_mut().poll(context) {
                Poll::Ready(never) => match never {},
                Poll::Pending => {}
            }
        }
        Poll::Pending
    })
    .await
}

async fn join_one(router: &str, door: &Door, host: &Host) -> Infallible {
    let mut backoff = Backoff::up_to(LONGEST_WAIT);
    loop {
        let started = Instant::now();
        let parted = match meet(router, door, host).await {
            Err(parted) => parted,
            Ok(never) => match never {},
        };
        let wait = backoff.after(started.elapsed());
        let retry_in_ms = wait.as_millis() as u64;
        tracing::warn!(router, error = %parted, retry_in_ms, "failed to join router; retrying");
        sleep(wait).await;
    }
}

/// Dials one router and speaks with it. Certificates are read for each, so that renewed ones are used.
async fn meet(router: &str, door: &Door, host: &Host) -> Result<Infallible, Parted> {
    let stream = dial(router).await?;
    let Some(DoorTls { ca, identity }) = &door.tls else {
        return converse(stream, door, host).await;
    };
    let config = tls::client(Some(ca), identity.as_ref())?;
    let connecting = TlsConnector::from(config).connect(tls::name_of(router)?, stream);
    let stream = timeout(WAIT, connecting).await.map_err(|_| Parted::Silent(WAIT))??;
    converse(stream, door, host).await
}

async fn dial(router: &str) -> Result<TcpStream, Parted> {
    let dialled = timeout(WAIT, TcpStream::connect(router)).await;
    let stream = dialled.map_err(|_| Parted::Silent(WAIT))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub async fn converse(
    stream: impl AsyncRead + AsyncWrite,
    door: &Door,
    host: &Host,
) -> Result<Infallible, Parted> {
    static CONVERSATIONS: AtomicU64 = AtomicU64::new(0);
    let conversation = CONVERSATIONS.fetch_add(1, Ordering::Relaxed);
    let parted = attend(stream, door, host, conversation).await;
    host.unled(conversation);
    parted
}

async fn attend(
    stream: impl AsyncRead + AsyncWrite,
    door: &Door,
    host: &Host,
    conversation: u64,
) -> Result<Infallible, Parted> {
    let (read, mut write) = split(stream);
    let mut lines = Lines::new(read, MAX_MESSAGE);
    say(&mut write, &FromWorker::join(&door.token, &door.name), OLDEST).await?;
    let first = timeout(WAIT, hear(&mut lines)).await.map_err(|_| Parted::Silent(WAIT))??;
    let version = match first {
        ToWorker::Refused { reason } => return Err(Parted::Refused { reason }),
        ToWorker::Welcome { version } if SPOKEN.contains(&version) => version,
        ToWorker::Welcome { version: theirs } => return Err(Parted::Version { theirs }),
        ToWorker::Still
        | ToWorker::Lead { .. }
        | ToWorker::Desired(_)
        | ToWorker::ReadLog { .. } => OLDEST,
    };
    tracing::info!(worker = door.name, version, "joined router");
    let mut changes = host.changes();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            message = hear(&mut lines) => {
                heard = Instant::now();
                match message? {
                    ToWorker::Desired(desired) => host.desire(*desired),
                    ToWorker::Refused { reason } => return Err(Parted::Refused { reason }),
                    ToWorker::ReadLog { question, job, rank, from, most } => {
                        let piece = host.read_log(job, rank, from, most.min(MAX_PIECE));
                        say(&mut write, &FromWorker::Log { question, piece }, version).await?;
                    }
                    ToWorker::Lead { term } => {
                        host.led(conversation, term);
                    }
                    ToWorker::Still => host.unled(conversation),
                    ToWorker::Welcome { .. } => {}
                }
                continue;
            }
            () = changes.next() => {}
            _ = ticks.tick() => {}
            () = sleep_until(heard + SILENCE) => return Err(Parted::Silent(SILENCE)),
        }
        say(&mut write, &FromWorker::Report(Box::new(host.report())), version).await?;
    }
}

/// Tells a router that speaks `version`, unless that version has no such message.
async fn say(
    write: &mut (impl AsyncWrite + Unpin),
    message: &FromWorker,
    version: u16,
) -> Result<(), Parted> {
    let Some(line) = line(message, version)? else { return Ok(()) };
    let written = timeout(WAIT, async {
        write.write_all(&line).await?;
        write.flush().await
    });
    Ok(written.await.map_err(|_| Parted::Silent(WAIT))??)
}

/// The next message that is known here. Nothing is lost if the future is dropped.
async fn hear<R: AsyncRead + Unpin>(lines: &mut Lines<R>) -> Result<ToWorker, Parted> {
    loop {
        let line = lines.next().await?.ok_or(Parted::Closed)?;
        if let Some(message) = read(&line.bytes)? {
            return Ok(message);
        }
    }
}

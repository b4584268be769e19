//! Where workers come in: who they are is asked first, then they report and are told.

use std::{io, sync::Arc, time::Duration};

use protocol::{FromWorker, Joined, MAX_JOIN, MAX_MESSAGE, OLDEST, ToWorker, admit};
use tls::ServerConfig;
use tokio::{
    io::{
        AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt,
        BufReader, ReadHalf, split,
    },
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use tokio_rustls::TlsAcceptor;

use super::{Entered, Fleet};
use crate::leader::Leadership;

/// How long a stranger may take to say who it is, and a worker to read.
const WAIT: Duration = Duration::from_secs(5);

/// How often a worker is told that the router is there.
const TICK: Duration = Duration::from_secs(1);

/// The most conversations at once.
const MAX_CONVERSATIONS: usize = 4096;

/// The wait after a failed accept, which would otherwise fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub enum Trust {
    Token(Arc<str>),
    /// Whoever holds the other end, which never left this process.
    Everyone,
}

#[derive(Debug, thiserror::Error)]
enum Parted {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it hung up")]
    Closed,
    #[error("it was refused: {0}")]
    Refused(String),
    #[error("it took more than {WAIT:?}")]
    Slow,
    #[error("its message is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("it said what cannot be understood: {0}")]
    Gibberish(#[from] serde_json::Error),
    #[error("another connection took its place")]
    Replaced,
}

/// Takes workers in, for ever, over the TLS that `tls` has at that moment.
pub async fn listen(
    listener: TcpListener,
    trust: Trust,
    fleet: Arc<Fleet>,
    tls: impl Fn() -> Option<Arc<ServerConfig>>,
) {
    let seats = Arc::new(Semaphore::new(MAX_CONVERSATIONS));
    let mut open = fleet.open();
    loop {
        let is_open = *open.borrow_and_update();
        let accepted = tokio::select! {
            biased;
            _ = open.changed() => continue,
            accepted = listener.accept(), if is_open => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "failed to accept worker connection");
                sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else {
            tracing::warn!(
                limit = MAX_CONVERSATIONS,
                "rejected worker connection: too many workers"
            );
            continue;
        };
        // Small lines back and forth: waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        let (trust, fleet, config) = (trust.clone(), Arc::clone(&fleet), tls());
        tokio::spawn(async move {
            let _seat = seat;
            let peer = peer.to_string();
            let Some(config) = config else {
                return welcome(stream, &peer, &trust, &fleet).await;
            };
            match timeout(WAIT, TlsAcceptor::from(config).accept(stream)).await {
                Ok(Ok(stream)) => welcome(stream, &peer, &trust, &fleet).await,
                Ok(Err(error)) => {
                    tracing::warn!(peer, %error, "worker failed to join: TLS handshake failed")
                }
                Err(_) => tracing::warn!(peer, "worker failed to join: timed out"),
            }
        });
    }
}

/// Speaks with one worker until they part.
pub async fn welcome(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    peer: &str,
    trust: &Trust,
    fleet: &Arc<Fleet>,
) {
    let (read, mut write) = split(stream);
    let mut reader = BufReader::new(read);
    let (Joined { worker: name, version }, entered) = match greet(&mut reader, trust, fleet).await {
        Ok(entered) => entered,
        Err(parted) => {
            tracing::warn!(peer, error = %parted, "worker failed to join");
            if let Parted::Refused(reason) = parted {
                // One that is refused may have hung up already.
                let _ = say(&mut write, &ToWorker::Refused { reason }, OLDEST).await;
            }
            return;
        }
    };
    tracing::info!(worker = name, peer, version, "worker joined");
    let Entered { conversation, desired, questions } = entered;
    let mut closed = fleet.open();
    let parted = tokio::select! {
        parted = hear(&mut reader, &name, conversation, fleet) => parted,
        parted = tell(&mut write, version, &fleet.leadership, (desired, questions)) => parted,
        _ = closed.wait_for(|open| !open) => Ok(()),
    };
    if fleet.leave(&name, conversation) {
        tracing::info!(worker = name, "worker disconnected (planned)");
        return;
    }
    let error = parted.err().map(|parted| parted.to_string());
    tracing::warn!(worker = name, error, "lost connection to worker; its replicas keep serving");
}

async fn greet(
    reader: &mut (impl AsyncBufRead + Unpin),
    trust: &Trust,
    fleet: &Fleet,
) -> Result<(Joined, Entered), Parted> {
    let message = timeout(WAIT, line(reader, MAX_JOIN)).await.map_err(|_| Parted::Slow)??;
    let token = match trust {
        Trust::Token(token) => Some(&**token),
        Trust::Everyone => None,
    };
    let joined = admit(&message, token).map_err(|error| Parted::Refused(error.to_string()))?;
    let entered = fleet.enter(&joined.worker).map_err(Parted::Refused)?;
    Ok((joined, entered))
}

async fn hear(
    reader: &mut BufReader<ReadHalf<impl AsyncRead>>,
    name: &str,
    conversation: u32,
    fleet: &Fleet,
) -> Result<(), Parted> {
    loop {
        match line(reader, MAX_MESSAGE).await? {
            FromWorker::Report(report) => {
                if !fleet.take(name, conversation, *report) {
                    return Err(Parted::Replaced);
                }
            }
            FromWorker::Log { question, piece } => fleet.questions.answer(question, piece),
            FromWorker::Join { .. } => return Err(Parted::Refused("it joined twice".to_owned())),
        }
    }
}

async fn tell(
    write: &mut (impl AsyncWrite + Unpin),
    version: u16,
    leadership: &Leadership,
    (mut desired, mut questions): (
        watch::Receiver<Option<Arc<protocol::Desired>>>,
        mpsc::Receiver<ToWorker>,
    ),
) -> Result<(), Parted> {
    say(write, &ToWorker::Welcome { version }, version).await?;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut news = leadership.news();
    // One that returns has not heard what was said before.
    desired.mark_changed();
    loop {
        let message = tokio::select! {
            changed = desired.changed() => {
                changed.map_err(|_| Parted::Replaced)?;
                match &*desired.borrow_and_update() {
                    // What was wished for by a leader that leads no more is not said.
                    Some(desired) if leadership.term() == Some(desired.term) => {
                        ToWorker::Desired(Box::new((**desired).clone()))
                    }
                    Some(_) | None => continue,
                }
            }
            Ok(()) = news.changed() => presence(leadership),
            Some(question) = questions.recv() => question,
            _ = ticks.tick() => presence(leadership),
        };
        say(write, &message, version).await?;
    }
}

fn presence(leadership: &Leadership) -> ToWorker {
    leadership.term().map_or(ToWorker::Still, |term| ToWorker::Lead { term })
}

/// Tells a worker that speaks `version`, unless that version has no such message.
async fn say(
    write: &mut (impl AsyncWrite + Unpin),
    message: &ToWorker,
    version: u16,
) -> Result<(), Parted> {
    let Some(line) = protocol::line(message, version)? else { return Ok(()) };
    let written = timeout(WAIT, async {
        write.write_all(&line).await?;
        write.flush().await
    });
    Ok(written.await.map_err(|_| Parted::Slow)??)
}

/// The next message that is known here, of at most `limit` bytes.
async fn line(
    reader: &mut (impl AsyncBufRead + Unpin),
    limit: usize,
) -> Result<FromWorker, Parted> {
    let mut line = Vec::new();
    let room = limit as u64 + 1;
    loop {
        line.clear();
        let read = (&mut *reader).take(room).read_until(b'\n', &mut line).await?;
        if read > limit {
            return Err(Parted::TooLong { limit });
        }
        if !line.ends_with(b"\n") {
            return Err(Parted::Closed);
        }
        if let Some(message) = protocol::read(&line)? {
            return Ok(message);
        }
    }
}

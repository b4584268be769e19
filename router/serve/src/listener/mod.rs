//! The accept loop and the life of a connection, for both listeners.
//!
//! When every connection slot is taken the newest client is told so (503) and closed: a client left
//! in the kernel's queue would learn of our trouble only by its own timeout.

mod activity;
mod handshake;
mod held;
mod stream;

use std::{
    convert::Infallible,
    error::Error,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use config::RouterSettings;
use futures_util::FutureExt;
use http::{Request, Response};
use hyper::{
    body::{Body, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use oip::Memory;
use parking_lot::Mutex;
use tls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

use self::{
    activity::{Activity, Clock, Overdue},
    handshake::handshake,
    held::Held,
    stream::Stream,
};
use crate::{drain::Phase, error::InferError, reply};

/// The smallest head limit hyper can keep.
const MIN_HEADER_BYTES: usize = 8_192;
/// Streams one HTTP/2 connection may have open.
const MAX_STREAMS: u32 = 256;
/// Streams a client may open and reset before we are done with it (CVE-2023-44487).
const MAX_RESET_STREAMS: usize = 32;
/// How far an HTTP/2 client may send ahead of us reading, per stream and in all.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// How long to wait when the process is out of descriptors, and how often to say so.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// How long a client just accepted has to send its request once the listener is closed.
const LAST_REQUEST: Duration = Duration::from_secs(1);
/// Clients being told at one time that there is no room; others are closed without a word.
const MAX_TURNED_AWAY: u32 = 64;
/// What is read from a client that is turned away, in bytes and time.
const FAREWELL_BYTES: usize = 64 << 10;
const FAREWELL: Duration = Duration::from_secs(1);

/// What a connection may take. Read anew for each, so a reload reaches every later one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once.
    pub max_connections: u32,
    /// Bytes of a request's head.
    pub max_header_bytes: usize,
    /// Time for a head to arrive.
    pub header_timeout: Duration,
    /// Time for a client to read a response.
    pub body_timeout: Duration,
    /// Time without a request.
    pub idle_timeout: Duration,
}

impl From<&RouterSettings> for Limits {
    fn from(settings: &RouterSettings) -> Self {
        let max_header_bytes = usize::try_from(settings.max_header_bytes).unwrap_or(usize::MAX);
        Self {
            max_connections: settings.max_connections,
            max_header_bytes: max_header_bytes.clamp(MIN_HEADER_BYTES, u32::MAX as usize),
            header_timeout: settings.header_timeout,
            body_timeout: settings.body_timeout,
            idle_timeout: settings.idle_timeout,
        }
    }
}

/// What a listener does with a request.
pub trait Answer: Send + Sync + 'static {
    /// The bodies of its replies.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// The limits now in force.
    fn limits(&self) -> Limits;

    /// The TLS to speak on connections from now on; none, they are plain.
    fn tls(&self) -> Option<Arc<ServerConfig>>;

    /// Answers one request. Dropping the future is the client hanging up.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// Who is at the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// What it asked last.
    pub(crate) said: Mutex<Memory>,
}

impl Peer {
    fn at(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self { address, said: Mutex::default() })
    }
}

/// Serves until `phase` is [`Phase::Closing`] and the last connection is done.
pub async fn serve<A: Answer>(tcp: TcpListener, answer: Arc<A>, phase: watch::Receiver<Phase>) {
    let mut closing = phase.clone();
    let door = Door { answer, open: Arc::default(), phase };
    let mut complained: Option<Instant> = None;
    loop {
        let close = closing.wait_for(|phase| *phase >= Phase::Closing).map(drop);
        tokio::select! {
            biased;
            () = close => break,
            accepted = tcp.accept() => if let Err(error) = door.welcome(accepted) {
                if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
                    complained = Some(Instant::now());
                    tracing::warn!(%error, "cannot accept; new connections wait");
                }
                sleep(ACCEPT_PAUSE).await;
            },
        }
    }
    // Clients the kernel has already let in would be reset by closing the listener.
    while let Some(accepted) = tcp.accept().now_or_never() {
        if door.welcome(accepted).is_err() {
            break;
        }
    }
    drop(tcp);
    door.open.emptied().await;
}

struct Door<A> {
    answer: Arc<A>,
    open: Arc<Open>,
    phase: watch::Receiver<Phase>,
}

impl<A: Answer> Door<A> {
    /// Starts a connection; an error is one of ours that waiting may cure.
    fn welcome(&self, accepted: io::Result<(TcpStream, SocketAddr)>) -> io::Result<()> {
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_theirs(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        // Without this, small replies wait for the client's delayed acknowledgement; it only fails
        // on a socket that is already gone.
        let _: io::Result<()> = tcp.set_nodelay(true);
        let most = self.answer.limits().max_connections;
        if let Some(slot) = self.open.enter(most) {
            let (answer, phase) = (Arc::clone(&self.answer), self.phase.clone());
            tokio::spawn(async move {
                let _slot = slot;
                let Some(config) = answer.tls() else {
                    return connection(tcp, peer, answer, phase).await;
                };
                if let Some(stream) = handshake(tcp, config, &answer.limits()).await {
                    // Apart, so that a plain connection does not take the room of a secured one.
                    Box::pin(connection(stream, peer, answer, phase)).await;
                }
            });
        } else if self.answer.tls().is_none()
            && let Some(turn) = self.open.turn_away()
        {
            let error = InferError::TooManyConnections { open: most.into() };
            tokio::spawn(async move {
                let _turn = turn;
                let farewell = farewell(tcp, reply::unframed(&error));
                let _: Result<(), _> = timeout(FAREWELL, farewell).await;
            });
        }
        Ok(())
    }
}

fn is_theirs(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// Says `words` and closes, reading what the client sends so that it is not reset before it reads.
async fn farewell(mut tcp: TcpStream, words: Bytes) {
    let mut scrap = vec![0; 4_096];
    let mut read = 0;
    let mut said = false;
    while read < FAREWELL_BYTES {
        match tcp.read(&mut scrap).await {
            Ok(0) | Err(_) => return,
            Ok(count) => read += count,
        }
        if !said {
            said = true;
            if tcp.write_all(&words).await.is_err() || tcp.shutdown().await.is_err() {
                return;
            }
        }
    }
}

async fn connection<A: Answer, T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
    peer: SocketAddr,
    answer: Arc<A>,
    mut phase: watch::Receiver<Phase>,
) {
    let mut limits = answer.limits();
    let peer = Peer::at(peer);
    let activity = Activity::new();
    let mut clock = Clock::new(Arc::clone(&activity), &limits);
    let io = TokioIo::new(Stream::new(stream, Arc::clone(&activity)));
    let service = service_fn(|request| {
        let (answer, peer, busy) = (Arc::clone(&answer), Arc::clone(&peer), activity.begin());
        async move {
            let response = answer.answer(request, peer).await;
            Ok::<_, Infallible>(response.map(|body| Held::new(body, busy)))
        }
    });
    let builder = protocol(&limits);
    let mut connection = pin!(builder.serve_connection(io, service));
    phase.mark_changed();
    loop {
        tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            changed = phase.changed() => {
                let now = *phase.borrow_and_update();
                if changed.is_err() || now == Phase::Cut {
                    return;
                }
                if now == Phase::Closing {
                    limits.header_timeout = limits.header_timeout.min(LAST_REQUEST);
                    if !activity.expects_request() {
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
            overdue = poll_fn(|cx| clock.poll(cx, &limits)) => match overdue {
                Overdue::Stuck => return,
                Overdue::Idle => {
                    connection.as_mut().graceful_shutdown();
                    let _: Result<_, _> = timeout(limits.idle_timeout, connection.as_mut()).await;
                    return;
                }
            }
        }
    }
}

fn protocol(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(limits.max_header_bytes);
    builder
        .http2()
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_RESET_STREAMS)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

/// The connections open now.
#[derive(Debug, Default)]
struct Open {
    count: AtomicU64,
    turned_away: AtomicU32,
    left: Notify,
}

impl Open {
    fn enter(self: &Arc<Self>, most: u32) -> Option<Slot> {
        if self.count.load(Ordering::Acquire) >= u64::from(most) {
            return None;
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        Some(Slot(Arc::clone(self)))
    }

    fn turn_away(self: &Arc<Self>) -> Option<Turn> {
        if self.turned_away.load(Ordering::Acquire) >= MAX_TURNED_AWAY {
            return None;
        }
        self.turned_away.fetch_add(1, Ordering::AcqRel);
        Some(Turn(Arc::clone(self)))
    }

    async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }
}

/// One open connection.
struct Slot(Arc<Open>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.left.notify_one();
    }
}

/// One client being told that there is no room.
struct Turn(Arc<Open>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.turned_away.fetch_sub(1, Ordering::AcqRel);
    }
}

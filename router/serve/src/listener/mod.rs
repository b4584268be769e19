//! Accepts connections for every door: TLS, limits and the drain.
//!
//! When every connection slot is taken the newest client is told so (503) and closed: a client left
//! in the kernel's queue would learn of our trouble only by its own timeout.

mod activity;
mod connection;
mod handshake;
mod held;
mod stream;

use std::{
    convert::Infallible,
    error::Error,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use config::RouterSettings;
use futures_util::FutureExt;
use http::Response;
use hyper::body::Body;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};
use tower::Service;

pub use self::connection::{Arrival, Peer};
use self::{connection::Connection, handshake::handshake};
use crate::{drain::Phase, error::InferError, reply, shared::Shared};

/// The smallest head limit hyper can keep.
const MIN_HEADER_BYTES: usize = 8_192;
/// How long to wait when the process is out of descriptors, and how often to say so.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Clients being told at one time that there is no room; others are closed without a word.
const MAX_TURNED_AWAY: u32 = 64;
/// What is read from a client that is turned away, in bytes and time.
const FAREWELL_BYTES: usize = 64 << 10;
const FAREWELL: Duration = Duration::from_secs(1);

/// What a connection may take. Read anew for each, so a reload reaches every later one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_connections: u32,
    pub max_header_bytes: usize,
    /// Bytes of an unread body that are read on.
    pub max_body_bytes: u64,
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
            max_body_bytes: settings.max_body_bytes,
            header_timeout: settings.header_timeout,
            body_timeout: settings.body_timeout,
            idle_timeout: settings.idle_timeout,
        }
    }
}

/// A socket that accepts connections for one door.
#[derive(Debug)]
pub struct Listener<S> {
    pub tcp: TcpListener,
    pub shared: Arc<Shared>,
    /// Instead of the connections that the settings allow.
    pub max_connections: Option<u32>,
    /// Answers requests. It must be ready always.
    pub service: S,
}

impl<S, B> Listener<S>
where
    S: Service<Arrival, Response = Response<B>, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    /// Serves until `phase` is [`Phase::HandedOver`] or later and the last connection is done.
    pub async fn serve(self, phase: watch::Receiver<Phase>) {
        let open = Arc::default();
        let mut closing = phase.clone();
        let mut accepting = self.shared.drain.accepting();
        let mut complained: Option<Instant> = None;
        loop {
            let accepts = *accepting.borrow_and_update();
            let close = closing.wait_for(|phase| *phase >= Phase::HandedOver).map(drop);
            tokio::select! {
                biased;
                () = close => break,
                _ = accepting.changed() => {}
                accepted = self.tcp.accept(), if accepts => {
                    let Err(error) = self.welcome(accepted, &open, &phase) else { continue };
                    if complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
                        complained = Some(Instant::now());
                        tracing::warn!(%error, "cannot accept; new connections wait");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // Clients the kernel has already let in would be reset by closing the listener, unless another
        // process has it too.
        while *phase.borrow() != Phase::HandedOver
            && let Some(accepted) = self.tcp.accept().now_or_never()
        {
            if self.welcome(accepted, &open, &phase).is_err() {
                break;
            }
        }
        drop(self);
        open.emptied().await;
    }

    /// Starts a connection; an error is one of ours that waiting may cure.
    fn welcome(
        &self,
        accepted: io::Result<(TcpStream, SocketAddr)>,
        open: &Arc<Open>,
        phase: &watch::Receiver<Phase>,
    ) -> io::Result<()> {
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_theirs(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        // Without this, small replies wait for the client's delayed acknowledgement; it only fails
        // on a socket that is already gone.
        let _: io::Result<()> = tcp.set_nodelay(true);
        let limits = Limits::from(&**self.shared.settings.load());
        let (most, tls) =
            (self.max_connections.unwrap_or(limits.max_connections), self.shared.http_tls());
        if let Some(slot) = open.enter(most) {
            let (drain, phase) = (Arc::clone(&self.shared.drain), phase.clone());
            let connection =
                Connection { peer, limits, drain, phase, service: self.service.clone() };
            tokio::spawn(async move {
                let _slot = slot;
                let Some(config) = tls else { return connection.serve(tcp).await };
                if let Some(stream) = handshake(tcp, config, &limits).await {
                    // Apart, so that a plain connection does not take the room of a secured one.
                    Box::pin(connection.serve(stream)).await;
                }
            });
        } else if tls.is_none()
            && let Some(turn) = open.turn_away()
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

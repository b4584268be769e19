//! A connection from its hello to its end.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use protocol::{FrameError, FromExecutor, Reply, ToExecutor, VERSION};
use tls::ClientConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, split},
    net::TcpStream,
    sync::{Notify, mpsc},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{read::Frames, unix, write};

/// How long an executor may take to be reached and to greet: what is dropped on the way is not
/// waited for.
const GREETING_WAIT: Duration = Duration::from_secs(1);

/// Where an executor listens and what it wants to hear.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// `unix:/path`, `tcp:host:port` or `tls:host:port`.
    pub address: String,
    pub token: String,
}

/// Why a connection could not be made, or ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The address is of no known kind.
    #[error("{address:?} is no address of an executor")]
    Address { address: String },
    /// It would be known by a certificate, and nobody said whose.
    #[error("the executor speaks TLS, and [tls] has no client_ca to know it by")]
    NoAuthority,
    /// The operating system said no, or the other side hung up.
    #[error("the connection to the executor failed")]
    Io(#[from] io::Error),
    /// The other side does not keep to the protocol.
    #[error("the executor does not keep to the protocol")]
    Frame(#[from] FrameError),
    /// It left a batch without an answer for too long.
    #[error("the executor does not answer")]
    GivenUp,
    /// It answered a batch that it does not have.
    #[error("the executor answered batch {batch}, which it was not sent")]
    Unasked {
        /// The batch's number, as the executor gave it.
        batch: u64,
    },
    #[error("the executor refused us: {reason}")]
    Refused { reason: String },
    /// The executor hangs, or nothing reaches it.
    #[error("the executor was silent for {0:?}")]
    Silent(Duration),
}

/// What goes back and forth, whatever it is: an executor that hangs differs from one that works.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    pub(super) received: AtomicU64,
    pub(super) writing: AtomicBool,
    /// Rung when nothing more is expected of it.
    given_up: Notify,
}

/// The sending side: whatever is given to it is written in order.
#[derive(Clone, Debug)]
pub struct Link {
    outbound: mpsc::UnboundedSender<Outbound>,
    pulse: Arc<Pulse>,
}

#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<Bytes>,
}

impl Link {
    /// Sends a message; `body` holds a batch's tensors in order.
    ///
    /// The queue is bounded by its user: a replica is given at most two batches. A message to a
    /// connection that has ended is dropped, since its end is reported to whoever reads it.
    pub fn send(&self, message: &ToExecutor, body: Vec<Bytes>) -> Result<(), FrameError> {
        let head = message.encode()?;
        let _ = self.outbound.send(Outbound { head, body });
        Ok(())
    }

    /// Has the executor say that it is there.
    pub fn ping(&self) {
        self.send(&ToExecutor::Ping, Vec::new()).expect("a ping is a small frame");
    }

    pub fn received(&self) -> u64 {
        self.pulse.received.load(Ordering::Relaxed)
    }

    /// Whether a frame is still being written, behind which a ping has to wait.
    pub fn is_writing(&self) -> bool {
        self.pulse.writing.load(Ordering::Relaxed)
    }

    /// Ends the connection, of which its reader is told.
    pub fn hang_up(&self) {
        self.pulse.given_up.notify_one();
    }
}

#[derive(Debug)]
pub struct Received {
    frames: Frames<Box<dyn AsyncRead + Send + Unpin>>,
    pulse: Arc<Pulse>,
}

impl std::fmt::Debug for Frames<Box<dyn AsyncRead + Send + Unpin>> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames").finish_non_exhaustive()
    }
}

impl Received {
    /// The next reply and its body. An error is the end of the connection.
    pub async fn next(&mut self) -> Result<(Reply, Bytes), LinkError> {
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.frames.next() => frame?,
                () = self.pulse.given_up.notified() => return Err(LinkError::GivenUp),
            };
            match frame {
                (FromExecutor::Reply(reply), body) => return Ok((reply, body)),
                (FromExecutor::Pong, _) => {}
                (FromExecutor::Refused { reason }, _) => return Err(LinkError::Refused { reason }),
                (FromExecutor::Hello { .. }, _) => return Err(FrameError::OutOfTurn.into()),
            }
        }
    }
}

/// Connects to an executor and greets it; one that speaks TLS is known by `authority`.
pub async fn connect(
    hello: &Hello,
    authority: Option<Arc<ClientConfig>>,
) -> Result<(Link, Received), LinkError> {
    let met = timeout(GREETING_WAIT, meet(hello, authority)).await;
    met.map_err(|_| LinkError::Silent(GREETING_WAIT))?
}

async fn meet(
    hello: &Hello,
    authority: Option<Arc<ClientConfig>>,
) -> Result<(Link, Received), LinkError> {
    match hello.address.split_once(':') {
        Some(("unix", path)) => {
            let (read, write) = unix::connect(path).await?;
            greet(hello, Box::new(read), write).await
        }
        Some(("tcp", address)) => {
            let (read, write) = dial(hello, address).await?.into_split();
            greet(hello, Box::new(read), write).await
        }
        Some(("tls", address)) => {
            let authority = authority.ok_or(LinkError::NoAuthority)?;
            let name = tls::name_of(address).map_err(io::Error::other)?;
            let stream = dial(hello, address).await?;
            let stream = TlsConnector::from(authority).connect(name, stream).await?;
            let (read, write) = split(stream);
            greet(hello, Box::new(read), write).await
        }
        Some(_) | None => Err(LinkError::Address { address: hello.address.clone() }),
    }
}

async fn dial(hello: &Hello, address: &str) -> Result<TcpStream, LinkError> {
    let unknown = |_| LinkError::Address { address: hello.address.clone() };
    let address: SocketAddr = address.parse().map_err(unknown)?;
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn greet(
    hello: &Hello,
    read: Box<dyn AsyncRead + Send + Unpin>,
    mut write: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(Link, Received), LinkError> {
    let greeting = ToExecutor::Hello { version: VERSION, token: hello.token.clone() };
    write.write_all(&greeting.encode()?).await?;
    let pulse = Arc::<Pulse>::default();
    let mut frames = Frames::new(read, Arc::clone(&pulse));
    match frames.next().await? {
        (FromExecutor::Hello { .. }, _) => {}
        (FromExecutor::Refused { reason }, _) => return Err(LinkError::Refused { reason }),
        (FromExecutor::Reply(_) | FromExecutor::Pong, _) => {
            return Err(FrameError::OutOfTurn.into());
        }
    }
    let (outbound, inbox) = mpsc::unbounded_channel();
    tokio::spawn(write::run(write, inbox, Arc::clone(&pulse)));
    Ok((Link { outbound, pulse: Arc::clone(&pulse) }, Received { frames, pulse }))
}

//! A connection from its hello to its end.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use protocol::{FrameError, FromExecutor, Reply, ToExecutor, VERSION};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    sync::{Notify, mpsc},
    time::timeout,
};

use super::{read::Frames, write};
use crate::dispatch::Unasked;

/// How long an executor may take to be reached and to greet us.
const HELLO_WAIT: Duration = Duration::from_secs(5);

/// Where an executor listens and what it wants to hear.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// `unix:/path` or `tcp:host:port`.
    pub address: String,
    /// The executor's token.
    pub token: String,
}

/// Why a connection could not be made, or ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The address is of no known kind.
    #[error("{address:?} is no address of an executor")]
    Address {
        /// As reported.
        address: String,
    },
    /// The operating system said no, or the other side hung up.
    #[error("the connection to the executor failed")]
    Io(#[from] io::Error),
    /// The other side does not keep to the protocol.
    #[error("the executor does not keep to the protocol")]
    Frame(#[from] FrameError),
    /// It was reached and says nothing, or could not be reached in time.
    #[error("the executor did not greet us within {HELLO_WAIT:?}")]
    Silent,
    /// It left a batch without an answer for too long.
    #[error("the executor does not answer")]
    GivenUp,
    /// It answered a batch that it does not have.
    #[error("the executor answers what it was not asked")]
    Unasked(#[from] Unasked),
    /// The executor does not want us.
    #[error("the executor refused us: {reason}")]
    Refused {
        /// Its words.
        reason: String,
    },
}

/// The sending side: whatever is given to it is written in order.
#[derive(Clone, Debug)]
pub struct Link {
    outbound: mpsc::UnboundedSender<Outbound>,
    given_up: Arc<Notify>,
}

/// A frame to write.
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

    /// Ends the connection, of which its reader is told.
    pub fn hang_up(&self) {
        self.given_up.notify_one();
    }
}

/// The receiving side.
#[derive(Debug)]
pub struct Received {
    frames: Frames<Box<dyn AsyncRead + Send + Unpin>>,
    given_up: Arc<Notify>,
}

impl std::fmt::Debug for Frames<Box<dyn AsyncRead + Send + Unpin>> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames").finish_non_exhaustive()
    }
}

impl Received {
    /// The next reply and its body. An error is the end of the connection.
    pub async fn next(&mut self) -> Result<(Reply, Bytes), LinkError> {
        let frame = tokio::select! {
            biased;
            frame = self.frames.next() => frame?,
            () = self.given_up.notified() => return Err(LinkError::GivenUp),
        };
        match frame {
            (FromExecutor::Reply(reply), body) => Ok((reply, body)),
            (FromExecutor::Refused { reason }, _) => Err(LinkError::Refused { reason }),
            (FromExecutor::Hello { .. }, _) => Err(FrameError::OutOfTurn.into()),
        }
    }
}

/// Connects to an executor and greets it.
pub async fn connect(hello: &Hello) -> Result<(Link, Received), LinkError> {
    timeout(HELLO_WAIT, reach(hello)).await.map_err(|_| LinkError::Silent)?
}

async fn reach(hello: &Hello) -> Result<(Link, Received), LinkError> {
    match hello.address.split_once(':') {
        Some(("unix", path)) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
            greet(hello, Box::new(read), write).await
        }
        Some(("tcp", address)) => {
            let address: SocketAddr = address
                .parse()
                .map_err(|_| LinkError::Address { address: hello.address.clone() })?;
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (read, write) = stream.into_split();
            greet(hello, Box::new(read), write).await
        }
        Some(_) | None => Err(LinkError::Address { address: hello.address.clone() }),
    }
}

async fn greet(
    hello: &Hello,
    read: Box<dyn AsyncRead + Send + Unpin>,
    mut write: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(Link, Received), LinkError> {
    let greeting = ToExecutor::Hello { version: VERSION, token: hello.token.clone() };
    write.write_all(&greeting.encode()?).await?;
    let mut frames = Frames::new(read);
    match frames.next().await? {
        (FromExecutor::Hello { .. }, _) => {}
        (FromExecutor::Refused { reason }, _) => return Err(LinkError::Refused { reason }),
        (FromExecutor::Reply(_), _) => return Err(FrameError::OutOfTurn.into()),
    }
    let (outbound, inbox) = mpsc::unbounded_channel();
    tokio::spawn(write::run(write, inbox));
    let given_up = Arc::new(Notify::new());
    Ok((Link { outbound, given_up: Arc::clone(&given_up) }, Received { frames, given_up }))
}

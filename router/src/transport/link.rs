//! A connection from its hello to its end.

use std::{io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use protocol::{FrameError, FromExecutor, Reply, ToExecutor, VERSION};
use tls::ClientConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, split},
    net::{TcpStream, UnixStream},
    sync::mpsc,
};
use tokio_rustls::TlsConnector;

use super::{read::Frames, write};

/// Where an executor listens and what it wants to hear.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// `unix:/path`, `tcp:host:port` or `tls:host:port`.
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
    /// It would be known by a certificate, and nobody said whose.
    #[error("the executor speaks TLS, and [tls] has no client_ca to know it by")]
    NoAuthority,
    /// The operating system said no, or the other side hung up.
    #[error("the connection to the executor failed")]
    Io(#[from] io::Error),
    /// The other side does not keep to the protocol.
    #[error("the executor does not keep to the protocol")]
    Frame(#[from] FrameError),
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
}

/// The receiving side.
#[derive(Debug)]
pub struct Received {
    frames: Frames<Box<dyn AsyncRead + Send + Unpin>>,
}

impl std::fmt::Debug for Frames<Box<dyn AsyncRead + Send + Unpin>> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames").finish_non_exhaustive()
    }
}

impl Received {
    /// The next reply and its body. An error is the end of the connection.
    pub async fn next(&mut self) -> Result<(Reply, Bytes), LinkError> {
        match self.frames.next().await? {
            (FromExecutor::Reply(reply), body) => Ok((reply, body)),
            (FromExecutor::Refused { reason }, _) => Err(LinkError::Refused { reason }),
            (FromExecutor::Hello { .. }, _) => Err(FrameError::OutOfTurn.into()),
        }
    }
}

/// Connects to an executor and greets it; one that speaks TLS is known by `authority`.
pub async fn connect(
    hello: &Hello,
    authority: Option<Arc<ClientConfig>>,
) -> Result<(Link, Received), LinkError> {
    match hello.address.split_once(':') {
        Some(("unix", path)) => {
            let (read, write) = UnixStream::connect(path).await?.into_split();
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
    let mut frames = Frames::new(read);
    match frames.next().await? {
        (FromExecutor::Hello { .. }, _) => {}
        (FromExecutor::Refused { reason }, _) => return Err(LinkError::Refused { reason }),
        (FromExecutor::Reply(_), _) => return Err(FrameError::OutOfTurn.into()),
    }
    let (outbound, inbox) = mpsc::unbounded_channel();
    tokio::spawn(write::run(write, inbox));
    Ok((Link { outbound }, Received { frames }))
}

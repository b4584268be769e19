//! A connection's bytes, as they are or inside TLS.

use std::{
    fmt,
    io::{self, IoSlice, Read, Write},
    net::TcpStream,
    sync::Arc,
};

use tls::{ClientConfig, ClientConnection, ServerName, StreamOwned};

/// Whom to trust, and the name that the server must prove to have.
#[derive(Clone)]
pub struct Secure {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

impl fmt::Debug for Secure {
    /// The name alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secure({:?})", self.name)
    }
}

impl Secure {
    pub fn begin(&self) -> io::Result<ClientConnection> {
        let begun = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        begun.map_err(io::Error::other)
    }
}

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub(crate) fn new(tcp: TcpStream, secure: Option<&Secure>) -> io::Result<Self> {
        Ok(match secure {
            None => Self::Plain(tcp),
            Some(secure) => Self::Tls(Box::new(StreamOwned::new(secure.begin()?, tcp))),
        })
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(stream) => stream.get_ref(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write_vectored(slices),
            Self::Tls(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

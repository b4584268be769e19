//! The socket of a handover: messages as JSON behind their length, and file descriptors.

use std::{
    fs::{self, DirBuilder},
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::SocketAddr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
    process::geteuid,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{UnixListener, UnixStream},
    time::timeout,
};

/// The longest message, in bytes.
const MAX_MESSAGE: u32 = 256 << 20;
/// The most descriptors at once.
const MAX_DESCRIPTORS: usize = 16;
/// How long the other side may take to read a message.
const WRITE_WAIT: Duration = Duration::from_secs(10);
const FILE: &str = "handover.sock";

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("the other process ended or hung up")]
    Closed,
    #[error("the other process said nothing for {0:?}")]
    Silent(Duration),
    #[error("the other process belongs to user {uid}")]
    Foreign { uid: u32 },
    #[error("the other process sent {got} file descriptors instead of {expected}")]
    Descriptors { got: usize, expected: usize },
    #[error("the other process sent a message of {length} bytes; at most {MAX_MESSAGE} are read")]
    TooLong { length: u32 },
    #[error("the other process sent a message that cannot be read: {0}")]
    Gibberish(#[from] serde_json::Error),
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for SocketError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let closed = matches!(error.kind(), UnexpectedEof | BrokenPipe | ConnectionReset);
        if closed { Self::Closed } else { Self::Io(error) }
    }
}

/// Where the router that uses `run_dir` listens for its successor.
pub fn path_in(run_dir: &Path) -> PathBuf {
    run_dir.join(FILE)
}

/// Where a router without a state directory listens for its successor: in `base`, by the address
/// that its file gives.
pub fn path_by(base: &Path, listen: SocketAddr) -> PathBuf {
    let folder = base.join(format!("sluice-{}", geteuid().as_raw()));
    folder.join(format!("{}-{}.sock", listen.ip(), listen.port()))
}

/// A socket that this process listens on. Dropping it removes the file, and its folder if nothing
/// else is in it.
#[derive(Debug)]
pub(super) struct Bound(PathBuf);

impl Bound {
    pub(super) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Leaves the file to the process that listens there next.
    pub(super) fn leave(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.0.as_os_str().is_empty() {
            return;
        }
        let _ = fs::remove_file(&self.0);
        if let Some(folder) = self.0.parent() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Listens at `path`, in place of whoever did before.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    private(folder)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    UnixListener::bind(path)
}

/// Makes `folder` if it is missing; nobody else may enter it.
fn private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::metadata(folder)?;
    let (mode, owner) = (found.mode() & 0o777, found.uid());
    if mode & 0o077 != 0 || owner != geteuid().as_raw() {
        let folder = folder.display();
        let why = format!("{folder} has mode {mode:o} and owner {owner}; it must be ours with 700");
        return Err(io::Error::other(why));
    }
    Ok(())
}

/// One side of a handover.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    /// Speaks over `stream`, whose other end must belong to this user.
    pub fn over(stream: UnixStream) -> Result<Self, SocketError> {
        let uid = stream.peer_cred()?.uid();
        if uid != geteuid().as_raw() {
            return Err(SocketError::Foreign { uid });
        }
        Ok(Self(stream))
    }

    pub async fn say(&mut self, message: &impl Serialize) -> Result<(), SocketError> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        if length > MAX_MESSAGE {
            return Err(SocketError::TooLong { length });
        }
        let written = async {
            self.0.write_all(&length.to_be_bytes()).await?;
            self.0.write_all(&text).await
        };
        Ok(timeout(WRITE_WAIT, written).await.map_err(|_| SocketError::Silent(WRITE_WAIT))??)
    }

    /// The next message, which must come within `wait`.
    pub async fn hear<M: DeserializeOwned>(&mut self, wait: Duration) -> Result<M, SocketError> {
        let read = async {
            let length = self.0.read_u32().await?;
            if length > MAX_MESSAGE {
                return Err(SocketError::TooLong { length });
            }
            let mut text = vec![0; length as usize];
            self.0.read_exact(&mut text).await?;
            Ok(serde_json::from_slice(&text)?)
        };
        timeout(wait, read).await.map_err(|_| SocketError::Silent(wait))?
    }

    /// Returns when the other side hangs up, or says something out of turn.
    pub async fn closed(&mut self) {
        let _ = self.0.read_u8().await;
    }

    /// Sends copies of `descriptors`, with one byte to carry them.
    pub async fn pass(&self, descriptors: &[BorrowedFd<'_>]) -> Result<(), SocketError> {
        let sent = self.0.async_io(Interest::WRITABLE, || {
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut control = SendAncillaryBuffer::new(&mut room);
            if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
                return Err(io::Error::other("too many file descriptors"));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(sendmsg(self.0.as_fd(), &[IoSlice::new(b"f")], &mut control, flags)?)
        });
        let sent = timeout(WRITE_WAIT, sent).await.map_err(|_| SocketError::Silent(WRITE_WAIT))?;
        sent.map(drop).map_err(SocketError::from)
    }

    /// Receives `expected` descriptors within `wait`.
    pub async fn receive(
        &self,
        expected: usize,
        wait: Duration,
    ) -> Result<Vec<OwnedFd>, SocketError> {
        let received = self.0.async_io(Interest::READABLE, || {
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut room);
            let mut byte = [0];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            recvmsg(self.0.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
            let mut descriptors = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            Ok(descriptors)
        });
        let received = timeout(wait, received).await.map_err(|_| SocketError::Silent(wait))??;
        if received.len() != expected {
            return Err(SocketError::Descriptors { got: received.len(), expected });
        }
        Ok(received)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn passed_listener_accepts_what_waited_in_its_queue() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"early").unwrap();
        let (old, new) = UnixStream::pair().unwrap();
        let (mut old, mut new) = (Channel::over(old).unwrap(), Channel::over(new).unwrap());
        old.say(&"before").await.unwrap();
        old.pass(&[listener.as_fd()]).await.unwrap();
        old.say(&"after").await.unwrap();
        drop(listener);
        assert_eq!(new.hear::<String>(WAIT).await.unwrap(), "before");
        let passed = new.receive(1, WAIT).await.unwrap().remove(0);
        assert_eq!(new.hear::<String>(WAIT).await.unwrap(), "after");
        let (mut served, _) = TcpListener::from(passed).accept().unwrap();
        let mut words = [0; 5];
        served.read_exact(&mut words).unwrap();
        assert_eq!(&words, b"early");
    }

    #[tokio::test]
    async fn hanging_up_is_told_from_silence() {
        let (old, new) = UnixStream::pair().unwrap();
        let mut new = Channel::over(new).unwrap();
        let silent = new.hear::<String>(Duration::from_millis(1)).await.unwrap_err();
        assert!(matches!(silent, SocketError::Silent(_)), "{silent}");
        drop(old);
        let closed = new.hear::<String>(WAIT).await.unwrap_err();
        assert!(matches!(closed, SocketError::Closed), "{closed}");
    }
}

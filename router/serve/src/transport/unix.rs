//! A Unix socket whose halves are woken for nothing but what they wait for.
//!
//! Whoever watches a Unix socket for room to write is told each time the peer has read from it, and
//! tokio's own stream always watches for that: a router would be woken once more for every batch.

use std::{
    io::{self, IoSlice},
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustix::{
    io::{read, writev},
    net::{Shutdown, shutdown},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd},
    net::UnixStream,
};

pub(super) struct ReadHalf(AsyncFd<Arc<OwnedFd>>);

/// The half that writes. Like tokio's, it says so when nothing more will come.
pub(super) struct WriteHalf {
    socket: Arc<OwnedFd>,
    /// There only while the socket is full.
    room: Option<AsyncFd<OwnedFd>>,
}

pub(super) async fn connect(path: &str) -> io::Result<(ReadHalf, WriteHalf)> {
    split(UnixStream::connect(path).await?)
}

fn split(stream: UnixStream) -> io::Result<(ReadHalf, WriteHalf)> {
    let socket = Arc::new(OwnedFd::from(stream.into_std()?));
    let reading = watch(Arc::clone(&socket), Interest::READABLE)?;
    Ok((ReadHalf(reading), WriteHalf { socket, room: None }))
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for types that change their descriptor; an OwnedFd cannot"
)]
fn watch<T: std::os::fd::AsRawFd>(socket: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(socket, interest)
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut readable = ready!(self.0.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            let asked = room.len();
            match readable.try_io(|socket| Ok(read(socket.get_ref(), &mut *room)?)) {
                Ok(Ok(count)) => {
                    // There was no more, so that asking again would be in vain.
                    if count > 0 && count < asked {
                        readable.clear_ready();
                    }
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl WriteHalf {
    fn write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            match writev(&self.socket, slices) {
                Ok(count) => {
                    self.room = None;
                    return Poll::Ready(Ok(count));
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
            let room = match &mut self.room {
                Some(room) => room,
                none => none.insert(watch(self.socket.try_clone()?, Interest::WRITABLE)?),
            };
            ready!(room.poll_write_ready(cx))?.clear_ready();
        }
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(&self.socket, Shutdown::Write).map_err(Into::into))
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        // One that is not connected any more needs no word of it.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> ((ReadHalf, WriteHalf), UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (split(ours).unwrap(), theirs)
    }

    #[tokio::test]
    async fn more_than_the_socket_holds_arrives_whole_and_in_order() {
        let ((_read, mut write), mut theirs) = pair();
        let sent: Vec<u8> = (0..4 << 20).map(|index: u32| (index % 251) as u8).collect();
        let expected = sent.clone();
        let writing = tokio::spawn(async move {
            write.write_all(&sent).await.unwrap();
            assert!(write.room.is_none(), "it is watched no longer than it was full");
        });
        let mut came = Vec::new();
        theirs.read_to_end(&mut came).await.unwrap();
        writing.await.unwrap();
        assert!(came == expected);
    }

    #[tokio::test]
    async fn what_comes_in_pieces_is_read_to_its_end() {
        let ((mut read, _write), mut theirs) = pair();
        let reading = tokio::spawn(async move {
            let mut came = Vec::new();
            let mut piece = [0; 3];
            loop {
                match read.read(&mut piece).await.unwrap() {
                    0 => return came,
                    count => came.extend_from_slice(&piece[..count]),
                }
            }
        });
        for piece in ["to", "gether", "", " again"] {
            theirs.write_all(piece.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
        drop(theirs);
        assert_eq!(reading.await.unwrap(), b"together again");
    }

    #[tokio::test]
    async fn the_peer_hears_that_nothing_more_will_come_though_it_is_still_read_from() {
        let ((mut read, write), mut theirs) = pair();
        drop(write);
        assert_eq!(theirs.read(&mut [0; 1]).await.unwrap(), 0);
        theirs.write_all(b"last").await.unwrap();
        let mut came = [0; 4];
        read.read_exact(&mut came).await.unwrap();
        assert_eq!(&came, b"last");
    }
}

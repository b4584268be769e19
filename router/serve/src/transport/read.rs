//! Reading frames.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use bytes::{Bytes, BytesMut};
use protocol::{FromExecutor, PRELUDE_LEN, Peer, Prelude};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::link::{LinkError, Pulse};

/// Made anew when little is left: answers hold on to what was read, so it cannot be used again.
const ROOM: usize = 64 * 1024;
const LITTLE: usize = 4 * 1024;

/// Frames from an executor, each read into a buffer that its body then shares.
pub(super) struct Frames<R> {
    from: R,
    buffer: BytesMut,
    /// How much of the buffer has been read into.
    read: usize,
    pulse: Arc<Pulse>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(from: R, pulse: Arc<Pulse>) -> Self {
        Self { from, buffer: BytesMut::zeroed(ROOM), read: 0, pulse }
    }

    /// The next frame. Not to be dropped before it is ready: what was read would be lost.
    pub(super) async fn next(&mut self) -> Result<(FromExecutor, Bytes), LinkError> {
        self.fill(PRELUDE_LEN).await?;
        let mut fixed = [0; PRELUDE_LEN];
        fixed.copy_from_slice(&self.buffer[..PRELUDE_LEN]);
        let prelude = Prelude::decode(&fixed, Peer::Executor)?;
        let header_end = PRELUDE_LEN + prelude.header_len as usize;
        let end = header_end + prelude.body_len as usize;
        self.fill(end).await?;
        let mut frame = self.buffer.split_to(end).freeze();
        self.read -= end;
        let body = frame.split_off(header_end);
        Ok((FromExecutor::decode(prelude, &frame[PRELUDE_LEN..])?, body))
    }

    /// Reads until at least `wanted` bytes of the buffer have come.
    async fn fill(&mut self, wanted: usize) -> io::Result<()> {
        while self.read < wanted {
            self.make_room(wanted - self.read);
            let count = self.from.read(&mut self.buffer[self.read..]).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read += count;
            self.pulse.received.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn make_room(&mut self, missing: usize) {
        if self.buffer.len() - self.read < missing.max(LITTLE) {
            let mut larger = BytesMut::zeroed(self.read + missing.max(ROOM));
            larger[..self.read].copy_from_slice(&self.buffer[..self.read]);
            self.buffer = larger;
        }
    }
}

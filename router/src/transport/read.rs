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
    pulse: Arc<Pulse>,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(from: R, pulse: Arc<Pulse>) -> Self {
        Self { from, buffer: BytesMut::with_capacity(ROOM), pulse }
    }

    /// The next frame. Not to be dropped before it is ready: what was read would be lost.
    pub(super) async fn next(&mut self) -> Result<(FromExecutor, Bytes), LinkError> {
        self.fill(PRELUDE_LEN).await?;
        let mut fixed = [0; PRELUDE_LEN];
        fixed.copy_from_slice(&self.buffer[..PRELUDE_LEN]);
        let prelude = Prelude::decode(&fixed, Peer::Executor)?;
        let header_end = PRELUDE_LEN + prelude.header_len as usize;
        self.fill(header_end + prelude.body_len as usize).await?;
        let mut frame = self.buffer.split_to(header_end + prelude.body_len as usize).freeze();
        let body = frame.split_off(header_end);
        Ok((FromExecutor::decode(prelude, &frame[PRELUDE_LEN..])?, body))
    }

    async fn fill(&mut self, wanted: usize) -> io::Result<()> {
        while self.buffer.len() < wanted {
            let missing = wanted - self.buffer.len();
            if self.buffer.capacity() - self.buffer.len() < missing.max(LITTLE) {
                self.buffer.reserve(missing.max(ROOM));
            }
            let read = self.from.read_buf(&mut self.buffer).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.pulse.received.fetch_add(read as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

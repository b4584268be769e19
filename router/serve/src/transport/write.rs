//! Writing frames without copying what they carry.

use std::{
    io::{self, IoSlice},
    sync::{Arc, atomic::Ordering},
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

use super::link::{Outbound, Pulse};

/// The most pieces one system call takes.
const MOST_SLICES: usize = 64;

/// Writes what comes until the sender is gone or the connection is.
pub(super) async fn run(
    mut to: impl AsyncWrite + Unpin,
    mut inbox: mpsc::UnboundedReceiver<Outbound>,
    pulse: Arc<Pulse>,
) {
    while let Some(frame) = inbox.recv().await {
        pulse.writing.store(true, Ordering::Relaxed);
        let written = write(&mut to, &frame).await;
        pulse.writing.store(false, Ordering::Relaxed);
        if let Err(error) = written {
            tracing::debug!(%error, "a batch could not be written; its reader will notice");
            return;
        }
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), frame: &Outbound) -> io::Result<()> {
    let mut pieces: Vec<&[u8]> = Vec::with_capacity(1 + frame.body.len());
    pieces.push(&frame.head);
    pieces.extend(frame.body.iter().map(|part| &part[..]).filter(|part| !part.is_empty()));
    let mut first = 0;
    while first < pieces.len() {
        let end = pieces.len().min(first + MOST_SLICES);
        let slices: Vec<IoSlice<'_>> =
            pieces[first..end].iter().map(|piece| IoSlice::new(piece)).collect();
        let mut written = to.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while first < pieces.len() && written >= pieces[first].len() {
            written -= pieces[first].len();
            first += 1;
        }
        if written > 0 {
            pieces[first] = &pieces[first][written..];
        }
    }
    to.flush().await
}

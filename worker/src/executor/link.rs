//! One connection with a router.

use std::{
    io::{self, BufReader, IoSlice, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::{
    Batch, Blame, Facts, Failure, FrameError, FromExecutor, Outcome, PRELUDE_LEN, Peer, Prelude,
    Reply, ToExecutor, VERSION, greet,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use super::{
    Executor,
    lane::{Rejected, Work},
    secure::Secure,
};
use crate::clock;

/// How long a peer may take to say hello.
const HELLO_WAIT: Duration = Duration::from_secs(5);

/// How long a router may leave a reply unread before its connection is given up: a replica waits
/// for it meanwhile.
const WRITE_WAIT: Duration = Duration::from_secs(5);

/// Small frames come in one read.
const READ_BUFFER: usize = 64 << 10;

pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Secure(Box<Secure>),
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => { stream }.read(buffer),
            Stream::Tcp(stream) => { stream }.read(buffer),
            Stream::Secure(stream) => stream.read(buffer),
        }
    }
}

impl Stream {
    fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => { stream }.write_vectored(slices),
            Self::Tcp(stream) => { stream }.write_vectored(slices),
            Self::Secure(stream) => stream.write_vectored(slices),
        }
    }

    fn tcp(&self) -> Result<&TcpStream, &UnixStream> {
        match self {
            Self::Unix(stream) => Err(stream),
            Self::Tcp(stream) => Ok(stream),
            Self::Secure(stream) => Ok(stream.tcp()),
        }
    }

    fn set_waits(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match self.tcp() {
            Ok(stream) => {
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(write)
            }
            Err(stream) => {
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(write)
            }
        }
    }

    /// Waits until there is something to read.
    ///
    /// A thread that waits for a Unix socket in a read is woken as well each time the router has taken
    /// a reply out of it. One that waits in a poll is not, and for other sockets it makes no difference.
    fn await_bytes(&self) -> io::Result<()> {
        let Self::Unix(stream) = self else { return Ok(()) };
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn close(&self) {
        // It is closed already, or it is closed now. Frames say how long they are, so that nobody
        // takes this for the end of one.
        let _ = match self.tcp() {
            Ok(stream) => stream.shutdown(std::net::Shutdown::Both),
            Err(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }
}

pub(super) struct Link {
    id: u64,
    stream: Stream,
    /// Held while a frame is written, so that frames do not mix.
    writing: Mutex<()>,
}

#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("cannot read: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Link {
    pub(super) fn new(id: u64, stream: Stream) -> Self {
        Self { id, stream, writing: Mutex::new(()) }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Sends a reply and the bytes that belong to it.
    ///
    /// If it cannot be sent the connection is closed, which is all a router needs to know.
    pub(super) fn reply(&self, reply: Reply, body: &[Bytes]) {
        let (batch, facts) = (reply.batch, reply.facts);
        let message = FromExecutor::Reply(reply);
        let sent = match message.encode() {
            Ok(head) => self.send(&head, body),
            Err(error) => self.send_message(&FromExecutor::Reply(Reply {
                batch,
                outcome: failed(Blame::Replica, &error),
                facts,
            })),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, link = self.id, "failed to send result; closed connection");
            self.stream.close();
        }
    }

    fn send_message(&self, message: &FromExecutor) -> io::Result<()> {
        let head = message.encode().map_err(io::Error::other)?;
        self.send(&head, &[])
    }

    fn send(&self, head: &[u8], body: &[Bytes]) -> io::Result<()> {
        let mut slices = Vec::with_capacity(1 + body.len());
        slices.push(IoSlice::new(head));
        slices.extend(body.iter().filter(|piece| !piece.is_empty()).map(|p| IoSlice::new(p)));
        let mut left = slices.as_mut_slice();
        let _writing = self.writing.lock();
        while !left.is_empty() {
            match self.stream.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

pub(super) fn failed(blame: Blame, reason: &impl ToString) -> Outcome {
    Outcome::Failed(Failure { blame, message: reason.to_string() })
}

/// Serves one connection until it ends; batches it left waiting are then forgotten.
pub(super) fn converse(id: u64, stream: Stream, executor: &Executor) {
    let link = Arc::new(Link::new(id, stream));
    let mut reader = BufReader::with_capacity(READ_BUFFER, &link.stream);
    let ended =
        admit(&link, &mut reader, executor).and_then(|()| attend(&link, &mut reader, executor));
    if let Err(error) = ended {
        tracing::warn!(link = id, %error, "closed connection");
    }
    link.stream.close();
    executor.lane.forget(id);
}

fn admit(link: &Link, reader: &mut impl Read, executor: &Executor) -> Result<(), LinkError> {
    link.stream.set_waits(Some(HELLO_WAIT), Some(WRITE_WAIT))?;
    let mut prelude = [0; PRELUDE_LEN];
    reader.read_exact(&mut prelude)?;
    let hello = Prelude::decode_hello(&prelude, Peer::Router)
        .map_err(LinkError::from)
        .and_then(|prelude| Ok(ToExecutor::decode(prelude, &read(reader, prelude.header_len)?)?))
        .and_then(|message| Ok(greet(&message, &executor.token)?));
    if let Err(error) = hello {
        link.send_message(&FromExecutor::Refused { reason: error.to_string() })?;
        return Err(error);
    }
    link.stream.set_waits(None, Some(WRITE_WAIT))?;
    let (slice, pid) = (executor.args.slice.clone(), std::process::id());
    link.send_message(&FromExecutor::Hello { version: VERSION, slice, pid })?;
    Ok(())
}

fn attend(
    link: &Arc<Link>,
    reader: &mut BufReader<&Stream>,
    executor: &Executor,
) -> Result<(), LinkError> {
    loop {
        if reader.buffer().is_empty() {
            link.stream.await_bytes()?;
        }
        let mut prelude = [0; PRELUDE_LEN];
        match reader.read_exact(&mut prelude) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
        let prelude = Prelude::decode(&prelude, Peer::Router)?;
        let header = read(reader, prelude.header_len)?;
        match ToExecutor::decode(prelude, &header)? {
            ToExecutor::Batch(batch) => {
                let body = Bytes::from(read(reader, prelude.body_len)?);
                take(link, batch, body, executor);
            }
            ToExecutor::Cancel { batch } => cancel(link, batch, executor),
            ToExecutor::Ping => link.send_message(&FromExecutor::Pong)?,
            ToExecutor::Hello { .. } => return Err(FrameError::OutOfTurn.into()),
        }
    }
}

fn read(reader: &mut impl Read, len: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn take(link: &Arc<Link>, batch: Batch, body: Bytes, executor: &Executor) {
    let id = batch.id;
    let rejected = match executor.replica(batch.replica) {
        Some(replica) => {
            let (arrived, from) = (clock::now(), Arc::clone(link));
            match executor.lane.push(Work { replica, batch, body, arrived, from }) {
                Ok(at_once) => {
                    at_once.inspect(|job| executor.lane.run(job));
                    None
                }
                Err(rejected) => Some(rejected),
            }
        }
        None => Some(Rejected::Unknown { replica: batch.replica }),
    };
    if let Some(rejected) = rejected {
        let outcome = failed(rejected.blame(), &rejected);
        link.reply(Reply { batch: id, outcome, facts: Facts::default() }, &[]);
    }
}

/// A batch that has started, or has ended, is not affected.
fn cancel(link: &Link, batch: u64, executor: &Executor) {
    if let Some(job) = executor.lane.cancel(link.id, batch) {
        let waited_us = clock::micros(clock::now() - job.arrived);
        let facts = Facts { waited_us, ..Facts::default() };
        link.reply(Reply { batch, outcome: Outcome::Cancelled, facts }, &[]);
    }
}

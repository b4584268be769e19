//! Changes as they happen.

use std::time::Duration;

use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use wire::Reader;

use crate::{
    client::{MAX_ANSWER, words},
    message::{Pair, Streamed, Watched},
};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A key was set.
    Put(Pair),
    /// A key is gone.
    Deleted {
        /// Which.
        key: String,
    },
}

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// What it asks for is no longer kept: list anew.
    #[error("changes before revision {kept} are no longer kept")]
    Compacted {
        /// The first revision that is.
        kept: u64,
    },
    /// It can be opened again where it left off.
    #[error("the watch at {member} ended: {why}")]
    Ended {
        /// The member that was watched.
        member: String,
        /// What happened.
        why: String,
    },
}

/// A stream of changes.
#[derive(Debug)]
pub struct Watch {
    stream: TcpStream,
    member: String,
    reader: Reader,
    /// What came of the next line so far.
    pending: Vec<u8>,
    buffer: Vec<u8>,
    /// The first revision that was not seen yet.
    next: u64,
}

impl Watch {
    pub(crate) fn new(stream: TcpStream, member: String, from: u64) -> Self {
        let (reader, pending, buffer) = (Reader::default(), Vec::new(), vec![0; 16 << 10]);
        Self { stream, member, reader, pending, buffer, next: from }
    }

    /// Where another watch goes on without a gap.
    pub fn next_revision(&self) -> u64 {
        self.next
    }

    /// The next changes, which may be none. One that is silent for longer than `patience` has ended:
    /// a member that vanished says nothing.
    ///
    /// If the future is dropped the watch is of no more use.
    pub async fn next(&mut self, patience: Duration) -> Result<Vec<Event>, WatchError> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                if let Some(events) = self.understand(&line)? {
                    return Ok(events);
                }
                continue;
            }
            let got = match timeout(patience, self.stream.read(&mut self.buffer)).await {
                Ok(Ok(0)) => return Err(self.ended("it hung up")),
                Ok(Ok(got)) => got,
                Ok(Err(error)) => return Err(self.ended(&error.to_string())),
                Err(_) => return Err(self.ended(&format!("silent for {patience:?}"))),
            };
            let Self { reader, pending, buffer, .. } = self;
            let fed = reader.feed(&buffer[..got], &mut |bytes| pending.extend_from_slice(bytes));
            match fed {
                Ok(None) if self.pending.len() <= MAX_ANSWER => {}
                Ok(None) => return Err(self.ended(&format!("more than {MAX_ANSWER} bytes"))),
                Ok(Some(answer)) => {
                    let said = words(&self.pending);
                    return Err(self.ended(&format!("{}: {said}", answer.status)));
                }
                Err(error) => return Err(self.ended(&error.to_string())),
            }
        }
    }

    /// The changes of one message; nothing if it tells only that the watch began.
    fn understand(&mut self, line: &[u8]) -> Result<Option<Vec<Event>>, WatchError> {
        let read: Streamed<Watched> = serde_json::from_slice(line)
            .map_err(|error| self.ended(&format!("not understood: {error}")))?;
        let Some(watched) = read.result else {
            let error = read.error.unwrap_or_default();
            return Err(self.ended(&error.to_string()));
        };
        if watched.compact_revision > 0 {
            return Err(WatchError::Compacted { kept: watched.compact_revision });
        }
        if watched.canceled {
            return Err(self.ended("it was cancelled"));
        }
        if watched.created {
            return Ok(None);
        }
        let last = watched.events.iter().map(|event| event.kv.mod_revision).max();
        self.next = self.next.max(last.unwrap_or(watched.header.revision) + 1);
        let events = watched.events.iter().filter_map(|event| {
            let pair = event.kv.pair()?;
            Some(match event.kind.as_str() {
                "DELETE" => Event::Deleted { key: pair.key },
                _ => Event::Put(pair),
            })
        });
        Ok(Some(events.collect()))
    }

    fn ended(&self, why: &str) -> WatchError {
        WatchError::Ended { member: self.member.clone(), why: why.to_owned() }
    }
}

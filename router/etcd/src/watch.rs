//! Changes as they happen.

use std::time::Duration;

use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use wire::Reader;

use crate::read::{Changes, Event, MAX_ANSWER, Stop, words};

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
    Ended { member: String, why: String },
}

#[derive(Debug)]
pub struct Watch {
    stream: TcpStream,
    member: String,
    reader: Reader,
    changes: Changes,
    buffer: Vec<u8>,
}

impl Watch {
    pub(crate) fn new(stream: TcpStream, member: String, from: u64) -> Self {
        let (reader, changes) = (Reader::default(), Changes::from(from));
        Self { stream, member, reader, changes, buffer: vec![0; 16 << 10] }
    }

    /// Where another watch goes on without a gap.
    pub fn next_revision(&self) -> u64 {
        self.changes.next_revision()
    }

    /// The next changes, which may be none. One that is silent for longer than `patience` has ended:
    /// a member that vanished says nothing.
    ///
    /// If the future is dropped the watch is of no more use.
    pub async fn next(&mut self, patience: Duration) -> Result<Vec<Event>, WatchError> {
        loop {
            match self.changes.take() {
                Ok(Some(events)) => return Ok(events),
                Ok(None) => {}
                Err(Stop::Compacted { kept }) => return Err(WatchError::Compacted { kept }),
                Err(Stop::Ended { why }) => return Err(self.ended(&why)),
            }
            let got = match timeout(patience, self.stream.read(&mut self.buffer)).await {
                Ok(Ok(0)) => return Err(self.ended("it hung up")),
                Ok(Ok(got)) => got,
                Ok(Err(error)) => return Err(self.ended(&error.to_string())),
                Err(_) => return Err(self.ended(&format!("silent for {patience:?}"))),
            };
            let Self { reader, changes, buffer, .. } = self;
            let fed = reader.feed(&buffer[..got], &mut |bytes| changes.feed(bytes));
            match fed {
                Ok(None) if self.changes.pending().len() <= MAX_ANSWER => {}
                Ok(None) => return Err(self.ended(&format!("more than {MAX_ANSWER} bytes"))),
                Ok(Some(answer)) => {
                    let said = words(self.changes.pending());
                    return Err(self.ended(&format!("{}: {said}", answer.status)));
                }
                Err(error) => return Err(self.ended(&error.to_string())),
            }
        }
    }

    fn ended(&self, why: &str) -> WatchError {
        WatchError::Ended { member: self.member.clone(), why: why.to_owned() }
    }
}

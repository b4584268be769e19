//! Frames: the unit the router and an executor exchange.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::batch::{Batch, BatchError, Outcome, Reply};

/// The version of frames and headers; peers of different versions refuse each other.
pub const VERSION: u16 = 2;

/// Bytes of an encoded [`Prelude`].
pub const PRELUDE_LEN: usize = 12;

/// The largest header, in bytes: room for thousands of requests in one batch.
pub const MAX_HEADER: u32 = 1 << 20;

/// The largest body, in bytes: twice the largest request a router accepts by default.
pub const MAX_BODY: u32 = 1 << 29;

/// The largest header of a peer that has not yet said hello, in bytes.
pub const MAX_HELLO: u32 = 1 << 12;

/// Which way a frame travels, so that a peer talking to itself is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Router,
    Executor,
}

impl Peer {
    const fn kind(self) -> u16 {
        match self {
            Self::Router => 1,
            Self::Executor => 2,
        }
    }

    const fn from_kind(kind: u16) -> Option<Self> {
        match kind {
            1 => Some(Self::Router),
            2 => Some(Self::Executor),
            _ => None,
        }
    }
}

/// The fixed start of a frame: how many bytes of header and body follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prelude {
    pub from: Peer,
    /// Bytes of header, at most [`MAX_HEADER`].
    pub header_len: u32,
    /// Bytes of body after the header, at most [`MAX_BODY`].
    pub body_len: u32,
}

/// Why a frame was refused; the connection it came on is of no further use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the peer speaks protocol version {theirs}, this program speaks {VERSION}")]
    Version { theirs: u16 },
    #[error("frame of kind {kind} where kind {wanted} belongs")]
    Kind { kind: u16, wanted: u16 },
    #[error("header of {len} bytes, at most {limit} are allowed")]
    HeaderTooLarge { len: u64, limit: u32 },
    #[error("body of {len} bytes, at most {limit} are allowed")]
    BodyTooLarge { len: u64, limit: u32 },
    #[error("header of {len} bytes is not a message")]
    Header { len: usize },
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("the token is not this executor's")]
    Token,
    #[error("a message came out of turn")]
    OutOfTurn,
}

impl Prelude {
    pub fn encode(self) -> [u8; PRELUDE_LEN] {
        let mut bytes = [0; PRELUDE_LEN];
        bytes[0..2].copy_from_slice(&VERSION.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.from.kind().to_le_bytes());
        bytes[4..8].copy_from_slice(&self.header_len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; PRELUDE_LEN], from: Peer) -> Result<Self, FrameError> {
        let [v0, v1, k0, k1, h0, h1, h2, h3, b0, b1, b2, b3] = *bytes;
        let theirs = u16::from_le_bytes([v0, v1]);
        let kind = u16::from_le_bytes([k0, k1]);
        if Peer::from_kind(kind) != Some(from) {
            return Err(FrameError::Kind { kind, wanted: from.kind() });
        }
        if theirs != VERSION {
            return Err(FrameError::Version { theirs });
        }
        let header_len = u32::from_le_bytes([h0, h1, h2, h3]);
        let body_len = u32::from_le_bytes([b0, b1, b2, b3]);
        Self::new(from, header_len.into(), body_len.into())
    }

    /// Reads the first prelude of a connection, when nothing is known of the peer: small, no body.
    pub fn decode_hello(bytes: &[u8; PRELUDE_LEN], from: Peer) -> Result<Self, FrameError> {
        let prelude = Self::decode(bytes, from)?;
        if prelude.header_len > MAX_HELLO {
            let len = prelude.header_len.into();
            return Err(FrameError::HeaderTooLarge { len, limit: MAX_HELLO });
        }
        if prelude.body_len > 0 {
            return Err(FrameError::BodyTooLarge { len: prelude.body_len.into(), limit: 0 });
        }
        Ok(prelude)
    }

    fn new(from: Peer, header_len: u64, body_len: u64) -> Result<Self, FrameError> {
        let header_len = u32::try_from(header_len)
            .ok()
            .filter(|len| *len <= MAX_HEADER)
            .ok_or(FrameError::HeaderTooLarge { len: header_len, limit: MAX_HEADER })?;
        let body_len = u32::try_from(body_len)
            .ok()
            .filter(|len| *len <= MAX_BODY)
            .ok_or(FrameError::BodyTooLarge { len: body_len, limit: MAX_BODY })?;
        Ok(Self { from, header_len, body_len })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToExecutor {
    /// The first message of a connection.
    Hello { version: u16, token: String },
    /// Run this batch; the body holds its tensors.
    Batch(Batch),
    /// Do not start this batch if it has not started.
    Cancel { batch: u64 },
    /// Say that you are there, whatever you are at.
    Ping,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromExecutor {
    Hello {
        version: u16,
        /// The label of the slice it owns, `gpu0:3g@4`.
        slice: String,
        pid: u32,
    },
    /// The answer to a bad hello; the executor hangs up after it.
    Refused {
        reason: String,
    },
    Reply(Reply),
    /// The answer to a ping, at once.
    Pong,
}

impl ToExecutor {
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        encode(Peer::Router, self, self.body_len())
    }

    pub fn decode(prelude: Prelude, header: &[u8]) -> Result<Self, FrameError> {
        let message: Self = decode(header)?;
        if let Self::Batch(batch) = &message {
            batch.check(prelude.body_len.into())?;
        } else if prelude.body_len > 0 {
            return Err(BatchError::Body { parts: 0, body: prelude.body_len.into() }.into());
        }
        Ok(message)
    }

    fn body_len(&self) -> u64 {
        match self {
            Self::Batch(batch) => batch.body_len(),
            Self::Hello { .. } | Self::Cancel { .. } | Self::Ping => 0,
        }
    }
}

impl FromExecutor {
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        encode(Peer::Executor, self, self.body_len())
    }

    pub fn decode(prelude: Prelude, header: &[u8]) -> Result<Self, FrameError> {
        let message: Self = decode(header)?;
        if let Self::Reply(Reply { outcome: Outcome::Done(answer), .. }) = &message {
            answer.check(prelude.body_len.into())?;
        } else if prelude.body_len > 0 {
            return Err(BatchError::Body { parts: 0, body: prelude.body_len.into() }.into());
        }
        Ok(message)
    }

    fn body_len(&self) -> u64 {
        match self {
            Self::Reply(Reply { outcome: Outcome::Done(answer), .. }) => answer.body_len(),
            Self::Reply(Reply { outcome: Outcome::Failed(_) | Outcome::Cancelled, .. })
            | Self::Hello { .. }
            | Self::Refused { .. }
            | Self::Pong => 0,
        }
    }
}

/// Judges the first message of a connection, as the executor that expects `token`.
///
/// The whole token is compared whatever its first difference, so that time tells nothing.
pub fn greet(message: &ToExecutor, expected: &str) -> Result<(), FrameError> {
    let ToExecutor::Hello { version, token } = message else {
        return Err(FrameError::OutOfTurn);
    };
    if *version != VERSION {
        return Err(FrameError::Version { theirs: *version });
    }
    if same_secret(token, expected) { Ok(()) } else { Err(FrameError::Token) }
}

/// Whether both are the same, in a time that tells only whether their lengths are.
pub(crate) fn same_secret(given: &str, expected: &str) -> bool {
    let differing = given.bytes().zip(expected.bytes()).fold(0, |seen, (a, b)| seen | (a ^ b));
    differing == 0 && given.len() == expected.len()
}

fn encode(from: Peer, message: &impl Serialize, body_len: u64) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::with_capacity(512);
    bytes.resize(PRELUDE_LEN, 0);
    let mut bytes = postcard::to_extend(message, bytes)
        .expect("a growing buffer takes every message, and every sequence here has a length");
    let header_len = (bytes.len() - PRELUDE_LEN) as u64;
    let prelude = Prelude::new(from, header_len, body_len)?;
    bytes[..PRELUDE_LEN].copy_from_slice(&prelude.encode());
    Ok(bytes)
}

fn decode<T: DeserializeOwned>(header: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(header) {
        Ok((message, [])) => Ok(message),
        Ok(_) | Err(_) => Err(FrameError::Header { len: header.len() }),
    }
}

#[cfg(test)]
mod tests;

//! Request bodies, read within a size and a time.

pub(crate) mod coding;
pub(crate) mod room;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use config::RouterSettings;
use http::{HeaderMap, Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout, timeout_at};

use self::{coding::Coding, room::Share};
use crate::error::InferError;

/// Room made at once for a body that announces its length; a lie costs no more than this.
const MAX_RESERVED_BYTES: u64 = 1 << 20;
/// How long the rest of a refused body is read.
const DISCARD: Duration = Duration::from_secs(2);

/// What a body may take.
#[derive(Debug)]
pub(crate) struct BodyLimits {
    pub(crate) arriving_bytes: u64,
    pub(crate) unpacked_bytes: u64,
    pub(crate) time: Duration,
    /// What it holds of the room for all.
    pub(crate) share: Share,
}

impl BodyLimits {
    /// What `settings` allow a body that has `share`.
    pub(crate) fn new(settings: &RouterSettings, share: Share) -> Self {
        Self {
            arriving_bytes: settings.max_body_bytes,
            unpacked_bytes: settings.max_decompressed_bytes,
            time: settings.body_timeout,
            share,
        }
    }
}

/// The whole body, unpacked, and what it holds. What is too long is not read to its end.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: &mut Incoming,
    limits: BodyLimits,
    arrived: Instant,
) -> Result<(Bytes, Share), InferError> {
    let coding = Coding::of_request(headers)?;
    let announced_bytes = body.size_hint().exact();
    let limit_bytes = limits.arriving_bytes;
    let mut share = limits.share;
    if announced_bytes.is_some_and(|announced| announced > limit_bytes) {
        return Err(InferError::BodyTooLarge { limit_bytes, announced_bytes });
    }
    let packed =
        match timeout_at(arrived + limits.time, collect(body, limit_bytes, &mut share)).await {
            Ok(read) => read?,
            Err(_) => return Err(InferError::BodyTooSlow { allowed: limits.time }),
        };
    match coding {
        None => Ok((packed, share)),
        Some(coding) => {
            let unpacked_bytes = limits.unpacked_bytes;
            let unpacking = tokio::task::spawn_blocking(move || {
                let plain = coding.unpack(&packed, unpacked_bytes, &mut share)?;
                Ok((plain, share))
            });
            unpacking.await.unwrap_or(Err(InferError::Internal { what: "unpacking the body" }))
        }
    }
}

async fn collect(
    body: &mut Incoming,
    limit_bytes: u64,
    share: &mut Share,
) -> Result<Bytes, InferError> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut read = 0;
    // The end is known with the last byte, and asking for what comes after it would be to wait.
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| InferError::BodyCut { cause: error.to_string() })?;
        let Ok(data) = frame.into_data() else { continue };
        read += data.len() as u64;
        if read > limit_bytes {
            return Err(InferError::BodyTooLarge { limit_bytes, announced_bytes: None });
        }
        share.grow(data.len() as u64)?;
        if first.is_empty() {
            first = data;
            continue;
        }
        if rest.is_empty() {
            let expected = read + body.size_hint().lower();
            rest.reserve(expected.min(MAX_RESERVED_BYTES) as usize);
            rest.extend_from_slice(&first);
        }
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Reads on in what a reply left unread, within reason, so that the client can read that reply.
///
/// Closing an HTTP/1.1 connection with bytes unread resets it, and the client would see the reset
/// instead of our reason. HTTP/2 has better manners, and a client that waits for `100 Continue` has
/// sent nothing yet.
pub(crate) fn discard(headers: &HeaderMap, version: Version, mut body: Incoming, most: u64) {
    if body.is_end_stream() || version >= Version::HTTP_2 || headers.contains_key(header::EXPECT) {
        return;
    }
    tokio::spawn(timeout(DISCARD, async move {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, |data| data.len() as u64);
            if read > most {
                return;
            }
        }
    }));
}

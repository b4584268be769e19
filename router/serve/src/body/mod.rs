//! Request bodies, read within a size and a time.

pub(crate) mod buffer_budget;
pub(crate) mod coding;

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use config::RouterSettings;
use http::{HeaderMap, Request, Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout, timeout_at},
};

use self::{buffer_budget::Share, coding::Coding};
use crate::error::InferError;

/// Room made at once for a body that announces its length; a lie costs no more than this.
const MAX_RESERVED_BYTES: u64 = 1 << 20;
/// How long the rest of a refused body is read.
const DISCARD: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct BodyLimits {
    pub(crate) arriving_bytes: u64,
    pub(crate) unpacked_bytes: u64,
    pub(crate) time: Duration,
    /// What it holds of the room for all.
    pub(crate) share: Share,
}

impl BodyLimits {
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
    body: &mut RequestBody,
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
    body: &mut RequestBody,
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
        share.grow(data.len() as u64).await?;
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

/// The body of a request. What is left of it when it is dropped is read on for a while, so that the
/// client can read the response.
///
/// Closing an HTTP/1.1 connection with bytes unread resets it, and the client would see the reset
/// instead of our reason. HTTP/2 has better manners, and a client that waits for `100 Continue` has
/// sent nothing yet.
#[derive(Debug)]
pub struct RequestBody {
    /// Present until the drop.
    incoming: Option<Incoming>,
    discard_bytes: u64,
}

impl RequestBody {
    /// The body of `request`, of which up to `most` bytes are read on.
    pub(crate) fn of(request: Request<Incoming>, most: u64) -> Request<Self> {
        let polite =
            request.version() >= Version::HTTP_2 || request.headers().contains_key(header::EXPECT);
        let discard_bytes = if polite { 0 } else { most };
        request.map(|body| Self { incoming: Some(body), discard_bytes })
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let most = self.discard_bytes;
        let Some(mut body) = self.incoming.take().filter(|body| most > 0 && !body.is_end_stream())
        else {
            return;
        };
        // There is no runtime if the last connections are dropped because it ends.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(timeout(DISCARD, async move {
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, |data| data.len() as u64);
                if read > most {
                    return;
                }
            }
        }));
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.incoming {
            Some(incoming) => Pin::new(incoming).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

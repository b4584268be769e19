//! Replies: their bodies, their common headers, and errors made into them.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
    vec,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;

use crate::error::InferError;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Of JSON.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A whole body in parts that are written without being joined.
#[derive(Debug, Default)]
pub struct Reply {
    first: Bytes,
    rest: vec::IntoIter<Bytes>,
    left: u64,
}

impl Reply {
    /// A body of several parts.
    pub(crate) fn of_parts(parts: Vec<Bytes>) -> Self {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Self { rest: parts.into_iter(), left, ..Self::default() }
    }
}

impl From<Bytes> for Reply {
    fn from(first: Bytes) -> Self {
        Self { left: first.len() as u64, first, ..Self::default() }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut part = std::mem::take(&mut self.first);
        while part.is_empty() {
            match self.rest.next() {
                Some(next) => part = next,
                None => return Poll::Ready(None),
            }
        }
        self.left -= part.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A reply of JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response<Reply> {
    match serde_json::to_vec(value) {
        Ok(body) => of(status, JSON, Bytes::from(body).into()),
        Err(_) => fail(&InferError::Internal { what: "a reply could not be written" }),
    }
}

/// A reply of `reply`.
pub fn of(status: StatusCode, kind: HeaderValue, reply: Reply) -> Response<Reply> {
    let mut response = Response::new(reply);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// What the caller is told of `error`.
pub fn fail(error: &InferError) -> Response<Reply> {
    let body = serde_json::to_vec(error).unwrap_or_default();
    let mut response = of(error.status(), JSON, Bytes::from(body).into());
    let headers = response.headers_mut();
    if let Some(wait) = error.retry_after() {
        headers.insert(header::RETRY_AFTER, retry_after_seconds(wait, spread()).into());
    }
    if let InferError::WrongMethod { allowed, .. } = error {
        set(headers, header::ALLOW, &allowed.join(", "));
    }
    if let InferError::Unauthorized = error {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let InferError::UnknownCoding { .. } = error {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
    }
    if let InferError::Quota { rate_rps, retry_after, .. } = error {
        let (quota, wait) = (rate_rps.ceil(), whole_seconds(*retry_after));
        set(headers, RATE_LIMIT_POLICY, &format!("\"tenant\";q={quota};w=1"));
        set(headers, RATE_LIMIT, &format!("\"tenant\";r=0;t={wait}"));
    }
    response
}

/// The same as bytes on the wire, for a client we have no HTTP connection with.
pub(crate) fn unframed(error: &InferError) -> Bytes {
    let body = serde_json::to_string(error).unwrap_or_default();
    let wait = error.retry_after().map_or(1, |wait| retry_after_seconds(wait, spread()));
    let (status, length) = (error.status(), body.len());
    Bytes::from(format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         retry-after: {wait}\r\nconnection: close\r\n\r\n{body}"
    ))
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn whole_seconds(wait: Duration) -> u64 {
    let up = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(up).max(1)
}

/// At least `wait`, in whole seconds, and up to a quarter or one second more, so that those refused
/// together do not return together.
fn retry_after_seconds(wait: Duration, spread: u64) -> u64 {
    let seconds = whole_seconds(wait);
    seconds + spread % (seconds / 4 + 2)
}

/// A number that differs from call to call.
fn spread() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    (call ^ (call >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_body_of_parts_announces_its_length_and_skips_empty_ones() {
        let parts = ["", "ab", "", "cde", ""].map(|part| Bytes::from_static(part.as_bytes()));
        let reply = Reply::of_parts(parts.to_vec());
        assert_eq!(reply.size_hint().exact(), Some(5));
        assert_eq!(reply.collect().await.unwrap().to_bytes(), "abcde");
        assert!(Reply::of_parts(vec![Bytes::new()]).is_end_stream());
    }

    #[test]
    fn retry_after_is_whole_rounded_up_at_least_one_and_spread() {
        let after = |ms, spread| retry_after_seconds(Duration::from_millis(ms), spread);
        assert_eq!(after(0, 0), 1);
        assert_eq!(after(1_000, 0), 1);
        assert_eq!(after(1_001, 0), 2);
        for spread in 0..100 {
            assert!((20..=26).contains(&after(20_000, spread)), "spread {spread}");
        }
        let waits: Vec<u64> =
            (0..64).map(|_| retry_after_seconds(Duration::ZERO, spread())).collect();
        assert!(waits.contains(&1) && waits.contains(&2), "no spread in {waits:?}");
    }
}

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

use crate::error::{InferError, body::Told};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

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

pub fn json(status: StatusCode, value: &impl Serialize) -> Response<Reply> {
    match serde_json::to_vec(value) {
        Ok(body) => of(status, JSON, Bytes::from(body).into()),
        Err(_) => fail(&InferError::Internal { what: "a reply could not be written" }),
    }
}

pub fn of(status: StatusCode, kind: HeaderValue, reply: Reply) -> Response<Reply> {
    let mut response = Response::new(reply);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// What the caller is told of `error`.
pub fn fail(error: &InferError) -> Response<Reply> {
    let retry_after = error.retry_after().map(|wait| spread_out(wait, spread()));
    let body = serde_json::to_vec(&Told { error, retry_after }).unwrap_or_default();
    let mut response = of(error.status(), JSON, Bytes::from(body).into());
    let headers = response.headers_mut();
    if let Some(wait) = retry_after {
        headers.insert(header::RETRY_AFTER, whole_seconds(wait).into());
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
    let retry_after = error.retry_after().map(|wait| spread_out(wait, spread()));
    let body = serde_json::to_string(&Told { error, retry_after }).unwrap_or_default();
    let wait = retry_after.map_or(1, whole_seconds);
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

/// At least `wait`, and more than it by up to a quarter and by up to a second, so that those refused
/// together do not return together. Never nothing.
fn spread_out(wait: Duration, spread: u64) -> Duration {
    let more = (wait / 4 + Duration::from_secs(1)).as_millis();
    let most = u64::try_from(more).unwrap_or(u64::MAX).max(1);
    wait.max(Duration::from_millis(1)).saturating_add(Duration::from_millis(spread % most))
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
        let after = |ms, spread| whole_seconds(spread_out(Duration::from_millis(ms), spread));
        assert_eq!(after(0, 0), 1);
        assert_eq!(after(1_000, 0), 1);
        assert_eq!(after(1_001, 0), 2);
        for spread in 0..20_000 {
            assert!((20..=26).contains(&after(20_000, spread)), "spread {spread}");
        }
        let waits: Vec<u64> = (0..64)
            .map(|_| whole_seconds(spread_out(Duration::from_millis(600), spread())))
            .collect();
        assert!(waits.contains(&1) && waits.contains(&2), "no spread in {waits:?}");
    }

    #[tokio::test]
    async fn retry_after_says_the_same_in_the_header_and_the_body() {
        for wait_ms in [0, 40, 999, 1_000, 3_500] {
            let retry_after = Duration::from_millis(wait_ms);
            let error = InferError::NoReplica {
                model: "digits".to_owned(),
                why: String::new(),
                retry_after,
            };
            let (head, body) = fail(&error).into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let told_ms = told["retry_after_ms"].as_f64().unwrap();
            let header: f64 = head.headers["retry-after"].to_str().unwrap().parse().unwrap();
            assert!(told_ms >= 1.0 && told_ms >= wait_ms as f64, "{wait_ms}: {told_ms}");
            assert_eq!((told_ms / 1e3).ceil(), header, "{wait_ms}: {told_ms}");
        }
    }
}

//! Why a request was not answered, and what its caller is told.
//!
//! One enum for every endpoint, so that the same trouble has the same status, the same `reason` and
//! the same body whichever way the request came in. Each variant holds the numbers that decided; the
//! four questions asked of it (status, reason, numbers, when to come back) stand side by side below,
//! and a new variant does not compile until all four are answered.

pub(crate) mod body;

use std::{convert::Infallible, time::Duration};

use http::{Method, StatusCode};

/// A request that did not get its answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InferError {
    #[error("nothing is served at {path:?}")]
    UnknownPath { path: String },
    /// The path exists, the method on it does not.
    #[error("{method} is not allowed here; use {}", .allowed.join(" or "))]
    WrongMethod {
        method: Method,
        /// What the path takes, for the `allow` header.
        allowed: &'static [&'static str],
    },
    /// The path names a model that is not configured; with what may have been meant.
    #[error("no model named {model:?}{hint}")]
    UnknownModel { model: String, hint: String },
    /// The model exists, but not in this version.
    #[error("{model} has no version {version:?}; it has {available:?}")]
    UnknownVersion { model: String, version: String, available: String },
    /// The body is not a request this model can take.
    #[error(transparent)]
    Invalid(#[from] oip::DecodeError),
    /// The body of a call other than inference is not the JSON it should be.
    #[error("the body is not what this call takes: {problem}")]
    BadBody { problem: String },
    /// A header or a parameter has a value we cannot read.
    #[error("{name} is {found:?}; give {wanted}")]
    BadValue { name: &'static str, found: String, wanted: &'static str },
    /// The body is longer than we read.
    #[error("the body is longer than {limit_bytes} bytes")]
    BodyTooLarge { limit_bytes: u64, announced_bytes: Option<u64> },
    /// The body unpacks to more than we hold.
    #[error("the body unpacks to more than {limit_bytes} bytes")]
    InflatesTooLarge { limit_bytes: u64, packed_bytes: u64 },
    /// All bodies together are as many bytes as we hold.
    #[error("request bodies would need {held_bytes} bytes; max_buffered_bytes is {limit_bytes}")]
    OutOfRoom { held_bytes: u64, limit_bytes: u64 },
    #[error("the body did not arrive within {} ms", .allowed.as_millis())]
    BodyTooSlow { allowed: Duration },
    /// The connection ended, or broke the rules of HTTP, inside the body.
    #[error("the body ended early: {cause}")]
    BodyCut { cause: String },
    /// The body's `content-encoding` is not one we read.
    #[error("content-encoding {coding:?} is not understood; use gzip, deflate or none")]
    UnknownCoding { coding: String },
    /// The body is not what its `content-encoding` says.
    #[error("the body is not valid {coding}: {cause}")]
    BadCoding { coding: &'static str, cause: String },
    /// A key is needed, and none or an unknown one was given.
    #[error("missing or unknown API key; send `Authorization: Bearer KEY`")]
    Unauthorized,
    /// The caller is known, or is not on this machine, and may not do this.
    #[error("not allowed: {needed} is needed")]
    Forbidden { needed: &'static str },
    /// The caller has used up its own rate.
    #[error("tenant {tenant} exceeded its rate limit of {rate_rps} rows/s")]
    Quota { tenant: String, rate_rps: f64, retry_after: Duration },
    /// The caller has as many requests under way as it may have.
    #[error(
        "tenant {tenant} has {in_flight} requests in flight; its max_in_flight is {max_in_flight}"
    )]
    Crowded { tenant: String, in_flight: u32, max_in_flight: u32 },
    /// Admitting the request would break the promise made to it or to those waiting.
    #[error(
        "{model} is overloaded: {waiting} requests wait, the answer would take {predicted_ms:.1} ms \
         of {slo_ms:.1} ms"
    )]
    Overloaded {
        model: String,
        waiting: u32,
        predicted_ms: f64,
        slo_ms: f64,
        retry_after: Duration,
    },
    /// The answer would have been in time, but not within the caller's own limit.
    #[error(
        "{model}: the answer would take {predicted_ms:.1} ms, and the request allows {timeout_ms:.1} ms; \
         the objective is {slo_ms:.1} ms"
    )]
    DeadlineTooShort { model: String, predicted_ms: f64, timeout_ms: f64, slo_ms: f64 },
    #[error("the deadline of {model} passed after {:.1} ms", .waited.as_secs_f64() * 1e3)]
    TooLate { model: String, waited: Duration },
    #[error("no replica of {model} is ready{}", clause(.why))]
    NoReplica {
        model: String,
        /// What it waits for, as far as the planner has said.
        why: String,
        retry_after: Duration,
    },
    /// The model cannot be asked, and waiting will not help.
    #[error("{model} is unavailable: {why}")]
    Unavailable { model: String, why: String },
    /// The model cannot take this request, whichever replica it is sent to.
    #[error("{model}: {message}")]
    Unfit { model: String, message: String },
    #[error("{model} failed: {message}")]
    Replica { model: String, message: String },
    /// The answer cannot be written in the form the caller asked for.
    #[error(transparent)]
    Unwritable(#[from] oip::EncodeError),
    /// The protocol has this, Sluice does not.
    #[error("{what} is not supported")]
    Unsupported { what: &'static str },
    /// Only the router that leads takes orders.
    #[error("this router does not lead; nothing was changed; {}", at(.leader.as_deref()))]
    Follows {
        /// The admin address of the leader, if it is known.
        leader: Option<String>,
    },
    /// An order could not be made durable.
    #[error("the order cannot be stored; nothing was changed: {cause}")]
    Unkept { cause: String },
    /// Every connection slot is taken.
    #[error("{open} connections are open, the most allowed")]
    TooManyConnections { open: u64 },
    /// Our own mistake; the details are in the log.
    #[error("internal error: {what}")]
    Internal { what: &'static str },
}

impl InferError {
    /// The HTTP status the caller sees.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_)
            | Self::BadBody { .. }
            | Self::BadValue { .. }
            | Self::BodyCut { .. }
            | Self::BadCoding { .. }
            | Self::Unfit { .. } => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::UnknownPath { .. } | Self::UnknownModel { .. } | Self::UnknownVersion { .. } => {
                StatusCode::NOT_FOUND
            }
            Self::WrongMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge { .. } | Self::InflatesTooLarge { .. } => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Self::UnknownCoding { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Quota { .. } | Self::Crowded { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded { .. }
            | Self::NoReplica { .. }
            | Self::Unavailable { .. }
            | Self::OutOfRoom { .. }
            | Self::Follows { .. }
            | Self::Unkept { .. }
            | Self::TooManyConnections { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLate { .. } | Self::DeadlineTooShort { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Unwritable(cause) if asks_for_binary(cause) => StatusCode::BAD_REQUEST,
            Self::Replica { .. } | Self::Unwritable(_) | Self::Internal { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Unsupported { .. } => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// The `reason` in the body and on the refusal counter. A fixed set, so cardinality is too.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownPath { .. } => "unknown_path",
            Self::WrongMethod { .. } => "wrong_method",
            Self::UnknownModel { .. } => "unknown_model",
            Self::UnknownVersion { .. } => "unknown_version",
            Self::Invalid(_)
            | Self::BadBody { .. }
            | Self::BadValue { .. }
            | Self::BodyTooLarge { .. }
            | Self::InflatesTooLarge { .. }
            | Self::BodyTooSlow { .. }
            | Self::BodyCut { .. }
            | Self::UnknownCoding { .. }
            | Self::BadCoding { .. }
            | Self::Unfit { .. } => "invalid",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden { .. } => "forbidden",
            Self::Quota { .. } | Self::Crowded { .. } => "quota",
            Self::Overloaded { .. } | Self::OutOfRoom { .. } | Self::TooManyConnections { .. } => {
                "overloaded"
            }
            Self::TooLate { .. } => "too_late",
            Self::DeadlineTooShort { .. } => "deadline_too_short",
            Self::NoReplica { .. } => "no_replica",
            Self::Unavailable { .. } => "unavailable",
            Self::Unwritable(cause) if asks_for_binary(cause) => "invalid",
            Self::Replica { .. } | Self::Unwritable(_) | Self::Internal { .. } => "failed",
            Self::Unsupported { .. } => "unsupported",
            Self::Follows { .. } => "not_leader",
            Self::Unkept { .. } => "storage",
        }
    }

    /// The model a request names, if it names one that is not served.
    pub(crate) fn unknown_model(&self) -> Option<&str> {
        if let Self::UnknownModel { model, .. } | Self::UnknownVersion { model, .. } = self {
            return Some(model);
        }
        None
    }

    /// How long the caller should wait, where waiting can help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Quota { retry_after, .. }
            | Self::Overloaded { retry_after, .. }
            | Self::NoReplica { retry_after, .. } => Some(*retry_after),
            Self::Crowded { .. } | Self::OutOfRoom { .. } | Self::TooManyConnections { .. } => {
                Some(Duration::from_secs(1))
            }
            Self::UnknownPath { .. }
            | Self::WrongMethod { .. }
            | Self::UnknownModel { .. }
            | Self::UnknownVersion { .. }
            | Self::Invalid(_)
            | Self::BadBody { .. }
            | Self::BadValue { .. }
            | Self::BodyTooLarge { .. }
            | Self::InflatesTooLarge { .. }
            | Self::BodyTooSlow { .. }
            | Self::BodyCut { .. }
            | Self::UnknownCoding { .. }
            | Self::BadCoding { .. }
            | Self::Unauthorized
            | Self::Forbidden { .. }
            | Self::TooLate { .. }
            | Self::DeadlineTooShort { .. }
            | Self::Unavailable { .. }
            | Self::Unfit { .. }
            | Self::Replica { .. }
            | Self::Unwritable(_)
            | Self::Unsupported { .. }
            | Self::Follows { .. }
            | Self::Unkept { .. }
            | Self::Internal { .. } => None,
        }
    }
}

/// A reason that follows what it explains; nothing without one.
fn clause(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

/// Services that answer their errors themselves stand behind the same layers.
impl From<Infallible> for InferError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

fn at(leader: Option<&str>) -> String {
    leader.map_or_else(
        || "no leader is known".to_owned(),
        |leader| format!("ask the router whose admin address is {leader}"),
    )
}

/// Whether the same request asking for binary would be answered.
fn asks_for_binary(error: &oip::EncodeError) -> bool {
    match error {
        oip::EncodeError::NotFinite { .. } | oip::EncodeError::NotUtf8 { .. } => true,
        oip::EncodeError::Malformed(_) | oip::EncodeError::Missing { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overloaded() -> InferError {
        InferError::Overloaded {
            model: "digits".to_owned(),
            waiting: 41,
            predicted_ms: 83.5,
            slo_ms: 50.0,
            retry_after: Duration::from_millis(1_200),
        }
    }

    #[test]
    fn a_body_gives_the_message_then_the_reason_then_the_numbers_that_decided() {
        assert_eq!(
            serde_json::to_string(&overloaded()).unwrap(),
            "{\"error\":\"digits is overloaded: 41 requests wait, the answer would take 83.5 ms of \
             50.0 ms\",\"reason\":\"overloaded\",\"model\":\"digits\",\"waiting\":41,\
             \"predicted_ms\":83.5,\"slo_ms\":50.0,\"retry_after_ms\":1200.0}"
        );
    }

    #[test]
    fn the_callers_quota_is_429_our_capacity_503_and_a_passed_deadline_504() {
        let quota = InferError::Quota {
            tenant: "search".to_owned(),
            rate_rps: 5.0,
            retry_after: Duration::from_millis(200),
        };
        let late =
            InferError::TooLate { model: "digits".to_owned(), waited: Duration::from_millis(51) };
        assert_eq!(quota.status(), 429);
        assert_eq!(overloaded().status(), 503);
        assert_eq!(late.status(), 504);
        assert_eq!(late.retry_after(), None, "waiting does not help a passed deadline");
    }
}

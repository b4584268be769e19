//! Why a request was not answered, and what its caller is told.
//!
//! One enum for every endpoint, so that the same trouble has the same status, the same `reason` and
//! the same body whichever way the request came in. Each variant holds the numbers that decided; the
//! four questions asked of it (status, reason, numbers, when to come back) stand side by side below,
//! and a new variant does not compile until all four are answered.

mod body;

use std::{convert::Infallible, time::Duration};

use http::{Method, StatusCode};

/// A request that did not get its answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InferError {
    /// Nothing is served at this path.
    #[error("nothing is served at {path:?}")]
    UnknownPath {
        /// As the client wrote it, cut if long.
        path: String,
    },
    /// The path exists, the method on it does not.
    #[error("{method} is not allowed here; use {}", .allowed.join(" or "))]
    WrongMethod {
        /// As the client wrote it.
        method: Method,
        /// What the path takes, for the `allow` header.
        allowed: &'static [&'static str],
    },
    /// The path names a model that is not configured.
    #[error("no model named {model:?}")]
    UnknownModel {
        /// As the client wrote it.
        model: String,
    },
    /// The model exists, but not in this version.
    #[error("{model} has no version {version:?}; it has {available:?}")]
    UnknownVersion {
        /// The model.
        model: String,
        /// As the client wrote it.
        version: String,
        /// The version that is served.
        available: String,
    },
    /// The body is not a request this model can take.
    #[error(transparent)]
    Invalid(#[from] oip::DecodeError),
    /// The body of a call other than inference is not the JSON it should be.
    #[error("the body is not what this call takes: {problem}")]
    BadBody {
        /// What the parser said, with line and column.
        problem: String,
    },
    /// A header or a parameter has a value we cannot read.
    #[error("{name} is {found:?}; give {wanted}")]
    BadValue {
        /// The header or field.
        name: &'static str,
        /// As the client wrote it.
        found: String,
        /// What would have been understood.
        wanted: &'static str,
    },
    /// The body is longer than we read.
    #[error("the body is longer than {limit_bytes} bytes")]
    BodyTooLarge {
        /// The limit in force.
        limit_bytes: u64,
        /// What `content-length` announced, if it did.
        announced_bytes: Option<u64>,
    },
    /// The body unpacks to more than we hold.
    #[error("the body unpacks to more than {limit_bytes} bytes")]
    InflatesTooLarge {
        /// The limit in force.
        limit_bytes: u64,
        /// Bytes before unpacking.
        packed_bytes: u64,
    },
    /// All bodies together are as many bytes as we hold.
    #[error("{held_bytes} bytes of requests would be held, {limit_bytes} are the most")]
    OutOfRoom {
        /// Bytes held, with this body.
        held_bytes: u64,
        /// The limit in force.
        limit_bytes: u64,
    },
    /// The body did not arrive in time.
    #[error("the body did not arrive within {} ms", .allowed.as_millis())]
    BodyTooSlow {
        /// The time allowed.
        allowed: Duration,
    },
    /// The connection ended, or broke the rules of HTTP, inside the body.
    #[error("the body ended early: {cause}")]
    BodyCut {
        /// What the transport said.
        cause: String,
    },
    /// The body's `content-encoding` is not one we read.
    #[error("content-encoding {coding:?} is not understood; use gzip, deflate or none")]
    UnknownCoding {
        /// As the client wrote it.
        coding: String,
    },
    /// The body is not what its `content-encoding` says.
    #[error("the body is not valid {coding}: {cause}")]
    BadCoding {
        /// The coding that was announced.
        coding: &'static str,
        /// What the decoder said.
        cause: String,
    },
    /// A key is needed, and none or an unknown one was given.
    #[error("a known key is needed: send `authorization: Bearer KEY`")]
    Unauthorized,
    /// The caller is known, or is not on this machine, and may not do this.
    #[error("not allowed: {needed} is needed")]
    Forbidden {
        /// What would have been enough.
        needed: &'static str,
    },
    /// The caller has used up its own rate.
    #[error("{tenant} is over its {rate_rps} requests a second")]
    Quota {
        /// The tenant's name.
        tenant: String,
        /// Its rate.
        rate_rps: f64,
        /// When one more request will be allowed.
        retry_after: Duration,
    },
    /// The caller has as many requests under way as it may have.
    #[error("{tenant} has {in_flight} requests under way and may have {max_in_flight}")]
    Crowded {
        /// The tenant's name.
        tenant: String,
        /// Its requests under way at refusal.
        in_flight: u32,
        /// The most it may have.
        max_in_flight: u32,
    },
    /// Admitting the request would break the promise made to it or to those waiting.
    #[error(
        "{model} is overloaded: {waiting} requests wait, the answer would take {predicted_ms:.1} ms \
         of {slo_ms:.1} ms"
    )]
    Overloaded {
        /// The model.
        model: String,
        /// Requests waiting at refusal.
        waiting: u32,
        /// The predicted time to the answer.
        predicted_ms: f64,
        /// The time there was.
        slo_ms: f64,
        /// When there should be room.
        retry_after: Duration,
    },
    /// The deadline passed before the answer came.
    #[error("the deadline of {model} passed after {:.1} ms", .waited.as_secs_f64() * 1e3)]
    TooLate {
        /// The model.
        model: String,
        /// Time since arrival.
        waited: Duration,
    },
    /// No replica of the model is ready.
    #[error("no replica of {model} is ready")]
    NoReplica {
        /// The model.
        model: String,
        /// When one may be.
        retry_after: Duration,
    },
    /// The model cannot be asked, and waiting will not help.
    #[error("{model} is unavailable: {why}")]
    Unavailable {
        /// The model.
        model: String,
        /// Why, for people.
        why: String,
    },
    /// The model cannot take this request, whichever replica it is sent to.
    #[error("{model}: {message}")]
    Unfit {
        /// The model.
        model: String,
        /// What the replica reported.
        message: String,
    },
    /// The replica failed the batch.
    #[error("{model} failed: {message}")]
    Replica {
        /// The model.
        model: String,
        /// What the replica reported.
        message: String,
    },
    /// The answer cannot be written in the form the caller asked for.
    #[error(transparent)]
    Unwritable(#[from] oip::EncodeError),
    /// The protocol has this, Sluice does not.
    #[error("{what} is not supported")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
    },
    /// Every connection slot is taken.
    #[error("{open} connections are open, the most allowed")]
    TooManyConnections {
        /// Connections open at refusal.
        open: u64,
    },
    /// Our own mistake; the details are in the log.
    #[error("internal error: {what}")]
    Internal {
        /// What could not be done.
        what: &'static str,
    },
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
            | Self::TooManyConnections { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLate { .. } => StatusCode::GATEWAY_TIMEOUT,
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
            Self::NoReplica { .. } => "no_replica",
            Self::Unavailable { .. } => "unavailable",
            Self::Unwritable(cause) if asks_for_binary(cause) => "invalid",
            Self::Replica { .. } | Self::Unwritable(_) | Self::Internal { .. } => "failed",
            Self::Unsupported { .. } => "unsupported",
        }
    }

    /// The model a request names, if it names one that is not served.
    pub(crate) fn unknown_model(&self) -> Option<&str> {
        if let Self::UnknownModel { model } | Self::UnknownVersion { model, .. } = self {
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
            | Self::Unavailable { .. }
            | Self::Unfit { .. }
            | Self::Replica { .. }
            | Self::Unwritable(_)
            | Self::Unsupported { .. }
            | Self::Internal { .. } => None,
        }
    }
}

/// Services that answer their errors themselves stand behind the same layers.
impl From<Infallible> for InferError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
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

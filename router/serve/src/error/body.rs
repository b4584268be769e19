//! The error body: the message and the reason, then the numbers that decided.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::InferError;

/// What the caller is told: `error` is for people, `reason` for programs.
pub(crate) struct Told<'a> {
    pub(crate) error: &'a InferError,
    /// The same as in the `retry-after` header, but for its rounding to seconds.
    pub(crate) retry_after: Option<Duration>,
}

impl Serialize for Told<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("error", &format_args!("{}", self.error))?;
        map.serialize_entry("reason", self.error.reason())?;
        self.error.numbers(&mut map)?;
        if let Some(wait) = self.retry_after {
            map.serialize_entry("retry_after_ms", &millis(wait))?;
        }
        map.end()
    }
}

impl Serialize for InferError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Told { error: self, retry_after: self.retry_after() }.serialize(serializer)
    }
}

impl InferError {
    /// Writes the fields that decided, beside `error` and `reason`.
    fn numbers<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        match self {
            Self::UnknownModel { model, .. } => map.serialize_entry("model", model),
            Self::UnknownVersion { model, version, .. } => {
                map.serialize_entry("model", model)?;
                map.serialize_entry("version", version)
            }
            Self::BodyTooLarge { limit_bytes, announced_bytes } => {
                map.serialize_entry("limit_bytes", limit_bytes)?;
                announced_bytes.map_or(Ok(()), |it| map.serialize_entry("announced_bytes", &it))
            }
            Self::InflatesTooLarge { limit_bytes, packed_bytes } => {
                map.serialize_entry("limit_bytes", limit_bytes)?;
                map.serialize_entry("packed_bytes", packed_bytes)
            }
            Self::OutOfRoom { held_bytes, limit_bytes } => {
                map.serialize_entry("held_bytes", held_bytes)?;
                map.serialize_entry("limit_bytes", limit_bytes)
            }
            Self::BodyTooSlow { allowed } => map.serialize_entry("allowed_ms", &millis(*allowed)),
            Self::Quota { tenant, rate_rps, .. } => {
                map.serialize_entry("tenant", tenant)?;
                map.serialize_entry("rate_rps", rate_rps)
            }
            Self::Crowded { tenant, in_flight, max_in_flight } => {
                map.serialize_entry("tenant", tenant)?;
                map.serialize_entry("in_flight", in_flight)?;
                map.serialize_entry("max_in_flight", max_in_flight)
            }
            Self::Overloaded { model, waiting, predicted_ms, slo_ms, .. } => {
                map.serialize_entry("model", model)?;
                map.serialize_entry("waiting", waiting)?;
                map.serialize_entry("predicted_ms", predicted_ms)?;
                map.serialize_entry("slo_ms", slo_ms)
            }
            Self::DeadlineTooShort { model, predicted_ms, timeout_ms, slo_ms } => {
                map.serialize_entry("model", model)?;
                map.serialize_entry("predicted_ms", predicted_ms)?;
                map.serialize_entry("timeout_ms", timeout_ms)?;
                map.serialize_entry("slo_ms", slo_ms)
            }
            Self::TooLate { model, waited } => {
                map.serialize_entry("model", model)?;
                map.serialize_entry("waited_ms", &millis(*waited))
            }
            Self::NoReplica { model, .. }
            | Self::Unavailable { model, .. }
            | Self::Unfit { model, .. }
            | Self::Replica { model, .. } => map.serialize_entry("model", model),
            Self::TooManyConnections { open } => map.serialize_entry("open", open),
            Self::Follows { leader: Some(leader) } => map.serialize_entry("leader", leader),
            Self::Follows { leader: None }
            | Self::Unkept { .. }
            | Self::UnknownPath { .. }
            | Self::WrongMethod { .. }
            | Self::Invalid(_)
            | Self::BadBody { .. }
            | Self::BadValue { .. }
            | Self::BodyCut { .. }
            | Self::UnknownCoding { .. }
            | Self::BadCoding { .. }
            | Self::Unauthorized
            | Self::Forbidden { .. }
            | Self::Unwritable(_)
            | Self::Unsupported { .. }
            | Self::Internal { .. } => Ok(()),
        }
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

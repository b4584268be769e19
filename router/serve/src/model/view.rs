//! A model as an operator sees it.

use serde::{Deserialize, Serialize};

use crate::{
    cache,
    count::{Totals, latency::LatencyView, recent::RecentView},
    dispatch,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    pub name: String,
    pub version: String,
    /// The digest of the model's files that its replicas shall have, where the router can read them.
    #[serde(default)]
    pub content: Option<String>,
    /// Whether it can be asked: `ready`, `loading`, `asleep`, `unloaded` or `unavailable`.
    pub availability: String,
    pub reason: Option<String>,
    pub slo_ms: f64,
    /// The share of requests that must be within it.
    pub slo_target: f64,
    pub max_batch: u32,
    pub batching: String,
    pub recent: RecentView,
    /// How long answers took over the last minute and hour; a router of an earlier version has none.
    #[serde(default)]
    pub latency: LatencyView,
    pub totals: Totals,
    pub dispatch: dispatch::View,
    pub replicas: Replicas,
    /// Its remembered answers, if it remembers.
    pub cache: Option<cache::View>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    pub starting: u32,
    pub warming: u32,
    pub ready: u32,
    pub draining: u32,
    pub failed: u32,
}

impl Replicas {
    /// The same if only so many are in rotation: a replica that is ready but cannot be reached is
    /// on its way, whatever its worker said last.
    pub(super) fn of_which(self, in_rotation: usize) -> Self {
        let ready = self.ready.min(u32::try_from(in_rotation).unwrap_or(u32::MAX));
        Self { ready, starting: self.starting + (self.ready - ready), ..self }
    }

    pub fn each(&self) -> [(&'static str, u32); 5] {
        let Self { starting, warming, ready, draining, failed } = *self;
        [
            ("starting", starting),
            ("warming", warming),
            ("ready", ready),
            ("draining", draining),
            ("failed", failed),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_replica_out_of_reach_is_not_counted_ready() {
        let reported = Replicas { ready: 3, failed: 1, ..Replicas::default() };
        let seen = reported.of_which(1);
        assert_eq!(seen, Replicas { ready: 1, starting: 2, failed: 1, ..Replicas::default() });
        assert_eq!(reported.of_which(5), reported, "one may be known before it is reported");
    }
}

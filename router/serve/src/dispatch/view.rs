//! What a dispatcher shows an operator.

use std::{collections::BTreeMap, time::Duration};

use policy::{dispatch::LimitedBy, moment::Moment};
use serde::{Deserialize, Serialize};

use super::state::State;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    pub waiting: usize,
    pub oldest_age_ms: f64,
    pub in_flight: usize,
    pub rate_rps: f64,
    /// Each replica in rotation and the most rows its next batch may hold.
    pub limits: Vec<Limit>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    pub replica: u32,
    pub slice: String,
    /// The most rows its next batch may hold.
    pub rows: u32,
    pub set_by: SetBy,
    /// How many times as long as in its warm-up such a batch takes.
    pub slowdown: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetBy {
    MaxBatch,
    /// Batches that came late, or too few yet that came in time.
    Aimd,
}

impl View {
    pub fn limits_by_slice(&self) -> impl Iterator<Item = (&str, u32)> {
        let mut largest = BTreeMap::<&str, u32>::new();
        for limit in &self.limits {
            let rows = largest.entry(&limit.slice).or_default();
            *rows = limit.rows.max(*rows);
        }
        largest.into_iter()
    }

    pub fn slowdowns_by_slice(&self) -> impl Iterator<Item = (&str, f64)> {
        let mut largest = BTreeMap::<&str, f64>::new();
        for limit in &self.limits {
            let slowdown = largest.entry(&limit.slice).or_insert(1.0);
            *slowdown = limit.slowdown.max(*slowdown);
        }
        largest.into_iter()
    }
}

impl State {
    pub(super) fn view(&self, now: Moment) -> View {
        let oldest = self.machine.oldest().map_or(Duration::ZERO, |arrived| now.since(arrived));
        let limits = self.machine.limits().filter_map(|limit| {
            let slice = self.links.get(&limit.replica)?.slice.clone();
            let set_by = match limit.set_by {
                LimitedBy::MaxBatch => SetBy::MaxBatch,
                LimitedBy::Aimd => SetBy::Aimd,
            };
            let (replica, rows, slowdown) = (limit.replica, limit.rows, limit.slowdown);
            Some(Limit { replica, slice, rows, set_by, slowdown })
        });
        View {
            waiting: self.machine.waiting(),
            oldest_age_ms: oldest.as_secs_f64() * 1e3,
            in_flight: self.machine.in_flight(),
            rate_rps: self.machine.rate(now),
            limits: limits.collect(),
        }
    }
}

//! Where requests' time went, since the start.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use oip::model::{BatchStats, DurationStat, InferenceStats, ModelStats};
use protocol::Facts;

use crate::count::carried::Work;

#[derive(Clone, Debug, Default)]
pub struct Tally {
    stats: InferenceStats,
    rows: u64,
    batches: u64,
    by_size: BTreeMap<u32, BatchStats>,
    last_ms: u64,
}

impl Tally {
    /// A request waited `waited` for its batch.
    pub fn waited(&mut self, waited: Duration) {
        add(&mut self.stats.queue, 1, nanos(waited));
    }

    pub fn batch(&mut self, rows: u32, facts: &Facts) {
        self.rows += u64::from(rows);
        self.batches += 1;
        let input = facts.input_us.saturating_mul(1_000);
        let infer = facts.compute_us.saturating_mul(1_000);
        let output = facts.output_us.saturating_mul(1_000);
        let requests = u64::from(rows);
        add(&mut self.stats.compute_input, requests, input.saturating_mul(requests));
        add(&mut self.stats.compute_infer, requests, infer.saturating_mul(requests));
        add(&mut self.stats.compute_output, requests, output.saturating_mul(requests));
        let size = self.by_size.entry(rows).or_default();
        size.batch_size = u64::from(rows);
        add(&mut size.compute_input, 1, input);
        add(&mut size.compute_infer, 1, infer);
        add(&mut size.compute_output, 1, output);
        self.last_ms = wall_clock_ms();
    }

    /// The rows that were computed, and how long that kept executors busy.
    pub fn work(&self) -> Work {
        let each = self.by_size.values();
        let ns = each.map(|size| {
            let parts = [size.compute_input.ns, size.compute_infer.ns, size.compute_output.ns];
            parts.into_iter().fold(0, u64::saturating_add)
        });
        Work { rows: self.rows, busy: Duration::from_nanos(ns.fold(0, u64::saturating_add)) }
    }

    pub fn success(&mut self, took: Duration) {
        add(&mut self.stats.success, 1, nanos(took));
    }

    pub fn fail(&mut self, took: Duration) {
        add(&mut self.stats.fail, 1, nanos(took));
    }

    /// A request need not be computed, which was found out in `took`.
    pub fn cache_hit(&mut self, took: Duration) {
        add(&mut self.stats.cache_hit, 1, nanos(took));
    }

    /// A request was looked for in memory in vain, which took `took`.
    pub fn cache_miss(&mut self, took: Duration) {
        add(&mut self.stats.cache_miss, 1, nanos(took));
    }

    /// As `/stats` shows it.
    pub fn stats(&self, name: &str, version: &str) -> ModelStats {
        ModelStats {
            name: name.to_owned(),
            version: version.to_owned(),
            last_inference: self.last_ms,
            inference_count: self.rows,
            execution_count: self.batches,
            inference_stats: self.stats,
            batch_stats: self.by_size.values().copied().collect(),
            ..ModelStats::default()
        }
    }
}

fn add(stat: &mut DurationStat, count: u64, ns: u64) {
    stat.count += count;
    stat.ns = stat.ns.saturating_add(ns);
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "the protocol's statistics give wall time")]
fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

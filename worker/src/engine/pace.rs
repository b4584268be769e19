//! Being slowed by others: what a simulated neighbour does to an engine that only sleeps.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The slowest an engine can be made.
const MOST: f64 = 1_000.0;

/// How many times as long as alone an engine takes; to be changed from any thread at any time.
#[derive(Clone, Debug)]
pub struct Pace(Arc<AtomicU64>);

impl Default for Pace {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1.0_f64.to_bits())))
    }
}

impl Pace {
    /// Batches that begin from now on take `factor` times as long as alone.
    pub fn slow_down(&self, factor: f64) {
        let factor = if factor.is_nan() { 1.0 } else { factor.clamp(0.0, MOST) };
        self.0.store(factor.to_bits(), Ordering::Relaxed);
    }

    pub fn factor(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

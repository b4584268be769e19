//! How long a simulated replica takes.

use std::time::Duration;

/// A latency curve by batch size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curve {
    /// A fixed cost and a cost per row: most models on a GPU.
    Linear { fixed_ms: f64, row_ms: f64 },
    /// Linear up to a size, then much steeper: a cache or an occupancy limit.
    Knee {
        fixed_ms: f64,
        row_ms: f64,
        /// The last cheap size.
        at: u32,
        /// Milliseconds per row past it.
        past_ms: f64,
    },
    /// Worse than proportional: batching never pays.
    Steep {
        one_ms: f64,
        /// The exponent of growth.
        power: f64,
    },
}

impl Curve {
    pub fn mean(&self, size: u32) -> Duration {
        let rows = f64::from(size);
        let ms = match *self {
            Curve::Linear { fixed_ms, row_ms } => fixed_ms + row_ms * rows,
            Curve::Knee { fixed_ms, row_ms, at, past_ms } => {
                let cheap = rows.min(f64::from(at));
                fixed_ms + row_ms * cheap + past_ms * (rows - cheap)
            }
            Curve::Steep { one_ms, power } => one_ms * rows.powf(power),
        };
        Duration::from_secs_f64(ms / 1e3)
    }

    pub fn warmup(&self, max: u32) -> Vec<(u32, Duration)> {
        let mut sizes: Vec<u32> = std::iter::successors(Some(1), |size| Some(size * 2))
            .take_while(|s| *s < max)
            .collect();
        sizes.push(max);
        sizes.into_iter().map(|size| (size, self.mean(size))).collect()
    }
}

//! What to aim for when there is more demand than can be served.
//!
//! A batch of `b` rows is then made of the youngest `b` requests, so the oldest of them has waited
//! `b / rate`. A larger batch serves more rows per second and leaves each less room for a slow run.
//! The best size gives the most rows in time per second, and with it how much slower than expected a
//! batch may be before its oldest request is late: the caution with which to choose whom to serve.

use std::time::Duration;

use crate::latency::Latency;

/// Sizes looked at, at most.
const SIZES: u32 = 64;
/// Members of a batch whose chance stands for that of their neighbours.
pub(crate) const SAMPLES: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Observed over expected time to leave room for.
    pub(crate) caution: f64,
    /// The time before its deadline by which the batch of a request must start.
    pub(crate) needs: Duration,
}

/// The best plan if requests have `allowed` from their arrival, come at `rate` rows per second, and
/// batches hold at most `cap` rows.
pub(crate) fn plan(latency: &Latency, cap: u32, rate: f64, allowed: Duration) -> Plan {
    let most = latency.rare();
    let rate = rate.max(1e-3);
    let slack_of = |rows: u32, older: f64| {
        let waited = Duration::from_secs_f64(f64::from(rows) * older / rate);
        allowed.saturating_sub(waited)
    };
    let (mut best, mut size) = (0.0, 1);
    for rows in (1..=cap).rev().step_by((1 + cap / SIZES) as usize) {
        let chances = (0..SAMPLES).map(|place| {
            let older = 1.0 - place as f64 / SAMPLES as f64;
            latency.chance(rows, slack_of(rows, older))
        });
        let in_time = latency.rows_per_second(rows) * chances.sum::<f64>();
        if in_time > best {
            (best, size) = (in_time, rows);
        }
    }
    let room = slack_of(size, 1.0).as_secs_f64() / latency.mean(size).as_secs_f64();
    let caution = room.clamp(1.0, most);
    Plan { caution, needs: latency.stretched(size, caution) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: f64) -> Duration {
        Duration::from_secs_f64(value / 1e3)
    }

    fn replica(jitter: &[f64]) -> Latency {
        let mut latency = Latency::new(&[(1, ms(8.5)), (64, ms(40.0))], 64);
        for round in 0..256 {
            let size = 1 + (round * 7) % 64;
            let mean = 8.0 + 0.5 * f64::from(size);
            latency.observe(size, ms(mean * jitter[round as usize % jitter.len()]));
        }
        latency
    }

    #[test]
    fn a_steady_replica_calls_for_no_caution() {
        let found = plan(&replica(&[1.0]), 64, 3_000.0, ms(50.0)).caution;
        assert!(found < 1.01, "{found}");
    }

    #[test]
    fn an_unsteady_replica_calls_for_caution() {
        let jitter = [0.7, 0.8, 0.9, 0.9, 1.0, 1.0, 1.1, 1.2, 1.3, 1.4];
        let found = plan(&replica(&jitter), 64, 3_000.0, ms(50.0)).caution;
        assert!((1.1..1.6).contains(&found), "{found}");
    }

    #[test]
    fn the_edge_values_are_safe() {
        let latency = replica(&[1.0]);
        assert!(plan(&latency, 1, 0.0, ms(50.0)).caution >= 1.0);
        assert!(plan(&latency, 1, 1e9, Duration::ZERO).caution >= 1.0);
        assert!(plan(&latency, 64, 1e-9, ms(50.0)).caution >= 1.0);
    }
}

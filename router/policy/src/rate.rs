//! How fast requests arrive, as an exponentially fading count.

use std::time::Duration;

use crate::moment::Moment;

/// Rows per second, remembered over a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    window_s: f64,
    per_second: f64,
    seen_at: Moment,
    started_at: Option<Moment>,
}

impl Rate {
    /// Forgets with time constant `window`.
    pub fn new(window: Duration) -> Self {
        assert!(window > Duration::ZERO);
        Self {
            window_s: window.as_secs_f64(),
            per_second: 0.0,
            seen_at: Moment::default(),
            started_at: None,
        }
    }

    /// `rows` arrived at `now`.
    pub fn add(&mut self, now: Moment, rows: u32) {
        self.started_at.get_or_insert(now);
        self.per_second = self.faded(now) + f64::from(rows) / self.window_s;
        self.seen_at = self.seen_at.max(now);
    }

    /// Rows per second as of `now`.
    ///
    /// A young estimate has seen only part of its window, so it is scaled up to what a full window
    /// would hold; the scale is bounded so that one early request is not taken for a flood.
    pub fn per_second(&self, now: Moment) -> f64 {
        let Some(started_at) = self.started_at else { return 0.0 };
        let age_s = now.since(started_at).as_secs_f64();
        let filled = 1.0 - (-age_s / self.window_s).exp();
        self.faded(now) / filled.max(0.1)
    }

    fn faded(&self, now: Moment) -> f64 {
        self.per_second * (-now.since(self.seen_at).as_secs_f64() / self.window_s).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(gap_us: u64, for_us: u64) -> Rate {
        let mut rate = Rate::new(Duration::from_millis(250));
        for at in (0..for_us).step_by(gap_us as usize) {
            rate.add(Moment::from_micros(at), 1);
        }
        rate
    }

    #[test]
    fn a_steady_stream_is_measured_within_five_percent() {
        let rate = steady(1_000, 2_000_000).per_second(Moment::from_micros(2_000_000));
        assert!((rate - 1_000.0).abs() < 50.0, "{rate}");
    }

    #[test]
    fn a_young_stream_is_measured_within_a_quarter() {
        let rate = steady(1_000, 100_000).per_second(Moment::from_micros(100_000));
        assert!((rate - 1_000.0).abs() < 250.0, "{rate}");
    }

    #[test]
    fn silence_is_forgotten() {
        let rate = steady(1_000, 1_000_000);
        assert!(rate.per_second(Moment::from_micros(3_000_000)) < 1.0);
    }

    #[test]
    fn a_fresh_rate_is_zero() {
        assert_eq!(
            Rate::new(Duration::from_secs(1)).per_second(Moment::from_micros(5)),
            0.0
        );
    }
}

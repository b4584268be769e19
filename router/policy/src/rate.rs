//! How fast requests arrive, as exponentially fading counts.

use std::time::Duration;

use crate::moment::Moment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    All,
    Main,
    /// Of that, what is not beyond its tenant's share.
    Open,
    Low,
}

const KINDS: usize = 4;

/// Rows per second of each kind, remembered over a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ArrivalRate {
    window_s: f64,
    per_second: [f64; KINDS],
    seen_at: Moment,
    started_at: Option<Moment>,
}

impl ArrivalRate {
    pub(crate) fn new(window: Duration) -> Self {
        assert!(window > Duration::ZERO);
        Self {
            window_s: window.as_secs_f64(),
            per_second: [0.0; KINDS],
            seen_at: Moment::default(),
            started_at: None,
        }
    }

    pub(crate) fn add(&mut self, kind: Kind, rows: u32, now: Moment) {
        self.started_at.get_or_insert(now);
        if now > self.seen_at {
            let keep = self.keeps(now);
            self.per_second.iter_mut().for_each(|per_second| *per_second *= keep);
            self.seen_at = now;
        }
        self.per_second[kind as usize] += f64::from(rows) / self.window_s;
    }

    /// Rows per second of `kind` as of `now`.
    ///
    /// A young estimate has seen only part of its window, so it is scaled up to what a full window
    /// would hold; the scale is bounded so that one early request is not taken for a flood.
    pub(crate) fn per_second(&self, kind: Kind, now: Moment) -> f64 {
        let Some(started_at) = self.started_at else { return 0.0 };
        let age = now.since(started_at).as_secs_f64() / self.window_s;
        let filled = if age > 10.0 { 1.0 } else { (1.0 - (-age).exp()).max(0.1) };
        self.per_second[kind as usize] * self.keeps(now) / filled
    }

    fn keeps(&self, now: Moment) -> f64 {
        match now.since(self.seen_at) {
            Duration::ZERO => 1.0,
            age => (-age.as_secs_f64() / self.window_s).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Moment {
        Moment::from_micros(us)
    }

    fn steady(gap_us: u64, for_us: u64) -> ArrivalRate {
        let mut demand = ArrivalRate::new(Duration::from_millis(250));
        for us in (0..for_us).step_by(gap_us as usize) {
            demand.add(Kind::Main, 1, at(us));
        }
        demand
    }

    #[test]
    fn a_steady_stream_is_measured_within_five_percent() {
        let rate = steady(1_000, 2_000_000).per_second(Kind::Main, at(2_000_000));
        assert!((rate - 1_000.0).abs() < 50.0, "{rate}");
    }

    #[test]
    fn a_young_stream_is_measured_within_a_quarter() {
        let rate = steady(1_000, 100_000).per_second(Kind::Main, at(100_000));
        assert!((rate - 1_000.0).abs() < 250.0, "{rate}");
    }

    #[test]
    fn silence_is_forgotten() {
        let demand = steady(1_000, 1_000_000);
        assert!(demand.per_second(Kind::Main, at(3_000_000)) < 1.0);
    }

    #[test]
    fn kinds_are_counted_apart() {
        let mut demand = steady(1_000, 1_000_000);
        demand.add(Kind::Low, 5, at(1_000_000));
        assert!(demand.per_second(Kind::Low, at(1_000_000)) < 25.0);
        assert_eq!(demand.per_second(Kind::Open, at(1_000_000)), 0.0);
    }

    #[test]
    fn a_fresh_rate_is_zero() {
        let fresh = ArrivalRate::new(Duration::from_secs(1));
        assert_eq!(fresh.per_second(Kind::All, at(5)), 0.0);
    }
}

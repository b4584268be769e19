//! A tenant's rate: one number that says when the next request is due.
//!
//! This is the token bucket written as a virtual schedule (GCRA): instead of tokens that must be
//! refilled, the bucket holds the moment up to which the rate is already used. Taking is one
//! compare-and-swap, nothing runs in between, and an idle tenant costs nothing.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A rate with one second's worth of burst.
#[derive(Debug)]
pub(super) struct Bucket {
    interval_ns: u64,
    burst_ns: u64,
    used_until_ns: AtomicU64,
}

impl Bucket {
    /// A full bucket of `rate_rps`, which is more than 0.
    pub(super) fn new(rate_rps: f64) -> Self {
        assert!(rate_rps > 0.0);
        let interval_ns = (1e9 / rate_rps).max(1.0) as u64;
        let burst = rate_rps.ceil().max(1.0) as u64;
        Self {
            interval_ns,
            burst_ns: interval_ns.saturating_mul(burst),
            used_until_ns: AtomicU64::new(0),
        }
    }

    /// Takes one request at `now`, or says how long until one will be allowed.
    pub(super) fn take(&self, now: Duration) -> Result<(), Duration> {
        let now_ns = nanos(now);
        let step = |used: u64| {
            let after = used.max(now_ns).saturating_add(self.interval_ns);
            (after.saturating_sub(now_ns) <= self.burst_ns).then_some(after)
        };
        let relaxed = Ordering::Relaxed;
        match self.used_until_ns.fetch_update(relaxed, relaxed, step) {
            Ok(_) => Ok(()),
            Err(used) => {
                let after = used.max(now_ns).saturating_add(self.interval_ns);
                Err(Duration::from_nanos(after - now_ns - self.burst_ns))
            }
        }
    }

    /// Charges `count` more requests without asking: later ones wait for the debt.
    pub(super) fn charge(&self, count: u32) {
        let cost = self.interval_ns.saturating_mul(u64::from(count));
        self.used_until_ns.fetch_add(cost, Ordering::Relaxed);
    }

    /// Requests that would be allowed at `now`.
    pub(super) fn left(&self, now: Duration) -> u64 {
        let used_ns = self.used_until_ns.load(Ordering::Relaxed).saturating_sub(nanos(now));
        self.burst_ns.saturating_sub(used_ns) / self.interval_ns
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn taken(bucket: &Bucket, now: Duration, tries: u32) -> u32 {
        (0..tries).map(|_| u32::from(bucket.take(now).is_ok())).sum()
    }

    #[test]
    fn a_full_bucket_holds_one_second_of_requests() {
        let bucket = Bucket::new(5.0);
        assert_eq!(bucket.left(SECOND), 5);
        assert_eq!(taken(&bucket, SECOND, 20), 5);
        assert_eq!(bucket.left(SECOND), 0);
    }

    #[test]
    fn an_empty_bucket_says_exactly_when_the_next_request_is_allowed() {
        let bucket = Bucket::new(5.0);
        assert_eq!(taken(&bucket, SECOND, 5), 5);
        let wait = bucket.take(SECOND).unwrap_err();
        assert_eq!(wait, Duration::from_millis(200));
        assert!(bucket.take(SECOND + wait - Duration::from_nanos(1)).is_err());
        assert!(bucket.take(SECOND + wait).is_ok());
    }

    #[test]
    fn the_long_run_rate_is_the_stated_one() {
        let bucket = Bucket::new(7.0);
        let allowed: u32 =
            (0..10_000).map(|ms| taken(&bucket, SECOND * 9 + SECOND * ms / 1_000, 1)).sum();
        assert!((76..=77).contains(&allowed), "{allowed} in ten seconds at 7 a second");
    }

    #[test]
    fn a_charge_is_paid_by_the_requests_after_it() {
        let bucket = Bucket::new(10.0);
        assert!(bucket.take(SECOND).is_ok());
        bucket.charge(31);
        let wait = bucket.take(SECOND).unwrap_err();
        assert_eq!(wait, Duration::from_millis(2_300));
    }

    #[test]
    fn a_rate_below_one_still_allows_one_at_a_time() {
        let bucket = Bucket::new(0.5);
        assert_eq!(taken(&bucket, SECOND, 3), 1);
        assert_eq!(bucket.take(SECOND).unwrap_err(), Duration::from_secs(2));
    }
}

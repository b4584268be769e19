//! How long to wait before what ended is started again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// What lived this long had found its feet: its end is a new trouble.
const HEALTHY: Duration = Duration::from_secs(30);

/// Doubling waits, until something lives long enough.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// The wait after one that ended having lived for `lived`.
    pub(crate) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= HEALTHY {
            self.next = FIRST;
        }
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_a_limit() {
        let mut backoff = Backoff::new();
        let waits: Vec<u128> = (0..9).map(|_| backoff.after(FIRST).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    }

    #[test]
    fn a_healthy_life_starts_the_waits_anew() {
        let mut backoff = Backoff::new();
        for _ in 0..5 {
            backoff.after(HEALTHY - Duration::from_millis(1));
        }
        assert!(backoff.after(Duration::ZERO) > FIRST);
        assert_eq!(backoff.after(HEALTHY), FIRST);
        assert_eq!(backoff.after(Duration::ZERO), FIRST * 2);
    }
}

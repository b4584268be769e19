//! How long to wait before something is tried again.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// What lasted this long had found its feet: its end is a new trouble.
const HEALTHY: Duration = Duration::from_secs(30);

/// Doubling waits, until something lasts long enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::up_to(LONGEST)
    }
}

impl Backoff {
    /// One that never waits for more than `longest`.
    pub(crate) fn up_to(longest: Duration) -> Self {
        Self { next: FIRST, longest }
    }

    /// The wait after something that ended having lasted for `lasted`.
    pub(crate) fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= HEALTHY {
            self.next = FIRST;
        }
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    backoff: Backoff,
    at: Instant,
}

impl Retry {
    pub(super) fn new(now: Instant) -> Self {
        let mut backoff = Backoff::default();
        let at = now + backoff.after(Duration::ZERO);
        Self { backoff, at }
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.at
    }

    /// It is being tried again; should it fail, the next wait is longer.
    pub(super) fn again(&mut self, now: Instant) {
        self.at = now + self.backoff.after(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_a_limit() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..9).map(|_| backoff.after(FIRST).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    }

    #[test]
    fn a_healthy_life_starts_the_waits_anew() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.after(HEALTHY - Duration::from_millis(1));
        }
        assert!(backoff.after(Duration::ZERO) > FIRST);
        assert_eq!(backoff.after(HEALTHY), FIRST);
        assert_eq!(backoff.after(Duration::ZERO), FIRST * 2);
    }
}

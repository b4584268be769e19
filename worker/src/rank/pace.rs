//! A rank that runs only part of the time.

use std::time::Duration;

use tokio::time::Instant;

/// The time in which it runs once and is paused once.
const PERIOD: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    duty: u8,
    paused: bool,
    changes: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { duty: 100, paused: false, changes: None }
    }
}

impl Pace {
    /// Lets it run `duty` percent of the time from `now` on.
    pub(super) fn set(&mut self, duty: u8, now: Instant) {
        let duty = duty.clamp(1, 100);
        if duty != self.duty {
            self.duty = duty;
            self.changes = Some(now);
        }
    }

    /// When it is next to be paused or let go on.
    pub(super) fn changes_at(&self) -> Option<Instant> {
        self.changes
    }

    /// Pauses it or lets it go on; whether it is paused now.
    pub(super) fn change(&mut self, now: Instant) -> bool {
        let runs = PERIOD.mul_f64(f64::from(self.duty) / 100.0);
        if self.duty == 100 {
            *self = Self::default();
        } else if self.paused {
            (self.paused, self.changes) = (false, Some(now + runs));
        } else {
            (self.paused, self.changes) = (true, Some(now + (PERIOD - runs)));
        }
        self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_the_part_of_each_period_it_may() {
        let start = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(pace.changes_at(), None);
        pace.set(20, start);
        let mut ran = Duration::ZERO;
        let mut now = start;
        for _ in 0..20 {
            let paused = pace.change(now);
            let next = pace.changes_at().unwrap();
            ran += if paused { Duration::ZERO } else { next - now };
            now = next;
        }
        assert_eq!(ran, (now - start) / 5);
        pace.set(100, now);
        assert!(!pace.change(now));
        assert_eq!(pace.changes_at(), None);
    }
}

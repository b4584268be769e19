//! Time as the policies see it: a number handed in by the caller.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// Microseconds since the caller's chosen start. Monotonic, never wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Moment = Moment(u64::MAX);

    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The time since `earlier`, or zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, by: Duration) -> Moment {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(micros))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, by: Duration) -> Moment {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_sub(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_a_later_moment_is_zero() {
        let early = Moment::from_micros(10);
        let late = Moment::from_micros(25);
        assert_eq!(late.since(early), Duration::from_micros(15));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn arithmetic_stops_at_the_ends_of_time() {
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
        assert_eq!(Moment::from_micros(3) - Duration::from_secs(1), Moment::default());
    }
}

//! The router's time, as the policies count it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy::moment::Moment;
use tokio::time::Instant;

/// No moment is further from the start than this.
const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Turns instants into moments since the router started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The present.
    pub fn now(&self) -> Moment {
        self.moment(Instant::now())
    }

    /// The instant of `moment`.
    pub fn instant(&self, moment: Moment) -> Instant {
        self.start + moment.since(Moment::default()).min(FAR)
    }

    /// `instant` as a moment; the start for anything before it.
    pub fn moment(&self, instant: Instant) -> Moment {
        let micros = instant.saturating_duration_since(self.start).as_micros();
        Moment::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// Seconds since 1970, by the system's clock, which may jump.
#[expect(clippy::disallowed_methods, reason = "a dashboard shows when, in wall time")]
pub fn wall_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

//! The clock that jobs are dated by.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy::moment::Moment;
use tokio::time::Instant;

const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Wall time that does not jump while the router runs. Its moments count from 1970.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    started: Instant,
    started_at: Moment,
}

impl WallClock {
    /// One that agrees with the system's now.
    #[expect(clippy::disallowed_methods, reason = "jobs are dated over restarts, in wall time")]
    pub fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_at: Moment::default() + since }
    }

    pub fn now(&self) -> Moment {
        self.moment(Instant::now())
    }

    /// The instant of `moment`; the start for anything before it.
    pub fn instant(&self, moment: Moment) -> Instant {
        self.started + moment.since(self.started_at).min(FAR)
    }

    /// `instant` as a moment; the start for anything before it.
    pub fn moment(&self, instant: Instant) -> Moment {
        self.started_at + instant.saturating_duration_since(self.started)
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now().micros() / 1000
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Whole milliseconds of a time.
pub(crate) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

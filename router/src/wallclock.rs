//! The clock that jobs are dated by.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Wall time that does not jump while the router runs.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    started: Instant,
    started_ms: u64,
}

impl WallClock {
    /// One that agrees with the system's now.
    #[expect(clippy::disallowed_methods, reason = "jobs are dated over restarts, in wall time")]
    pub fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_ms: whole_ms(since) }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.started_ms + whole_ms(self.started.elapsed())
    }
}

/// Whole milliseconds of a time.
pub(crate) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

//! The clock of an executor.

use std::time::{Duration, Instant};

/// Now, on the clock that batches are measured by.
#[expect(
    clippy::disallowed_methods,
    reason = "an executor measures real work on plain threads; there is no tokio clock to pause"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

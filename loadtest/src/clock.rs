//! Real time, as finely as the kernel tells it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine started. Read from the kernel rather than from tokio's clock, which a
/// test may pause: a load generator measures a world that does not pause.
pub(crate) fn now() -> Duration {
    read(ClockId::Monotonic)
}

/// Processor time this thread has used.
pub(crate) fn processor() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).expect("these clocks are never negative")
}

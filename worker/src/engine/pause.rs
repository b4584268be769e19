//! Waiting for a stated time, to within microseconds where the machine allows.
//!
//! The kernel rounds sleeps up by the thread's timer slack, 50 microseconds unless told otherwise,
//! and then takes its time to wake the thread. So the slack is set to the least, the sleep ends a
//! little early, and the rest is spun.

use std::time::{Duration, Instant};

use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};

use crate::clock;

/// How much of each wait is spun: about what a wake-up takes on a quiet machine.
const SPIN: Duration = Duration::from_micros(30);

pub(crate) fn until(moment: Instant) {
    loop {
        let left = moment.saturating_duration_since(clock::now());
        if left <= SPIN {
            break;
        }
        least_slack();
        let Ok(request) = Timespec::try_from(left - SPIN) else { break };
        match nanosleep(&request) {
            NanosleepRelativeResult::Ok | NanosleepRelativeResult::Interrupted(_) => {}
            NanosleepRelativeResult::Err(_) => break,
        }
    }
    while clock::now() < moment {
        std::hint::spin_loop();
    }
}

#[cfg(target_os = "linux")]
fn least_slack() {
    // Without it the wait is still right, only less exact.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(not(target_os = "linux"))]
fn least_slack() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_never_ends_early() {
        for micros in [0, 1, 20, 60, 200, 1_000] {
            let moment = clock::now() + Duration::from_micros(micros);
            until(moment);
            assert!(clock::now() >= moment, "{micros} us");
        }
    }
}

//! Waiting for what must happen, without guessing how long it takes.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Far longer than anything here takes, on a machine with other work too; only a hang gets this far.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

const PAUSE: Duration = Duration::from_millis(5);

/// What `look` finds, as soon as it finds it: the one place that polls.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "other processes give no event to wait for")]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::sleep(PAUSE);
    }
}

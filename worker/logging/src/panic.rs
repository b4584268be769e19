//! What a panic says, as a line of the log: the hook of the standard library waits for its reader.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic, thread,
};

use tracing::Level;

/// Logs every panic from now on, whatever is selected.
pub(crate) fn hook() {
    panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        let message = format!("thread panicked at {location}");
        let payload = info.payload_as_str().unwrap_or("no message");
        let backtrace = Backtrace::capture();
        crate::write(Level::ERROR, "panic", &message, |line| {
            line.text("thread", thread.name().unwrap_or("unnamed"));
            line.text("error", payload);
            if backtrace.status() == BacktraceStatus::Captured {
                line.text("backtrace", &backtrace.to_string());
            }
        });
    }));
}

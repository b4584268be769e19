//! One line per event on stderr: readable on a terminal, JSON elsewhere.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

/// Starts logging. `RUST_LOG` selects what is shown; the default is `info`.
pub(crate) fn start() {
    let chosen = EnvFilter::try_from_default_env();
    let filter = chosen.unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    // A line that cannot be written, for example to a full pipe, is dropped without a panic.
    let lines = lines.log_internal_errors(false);
    if stderr().is_terminal() {
        let colors = std::env::var_os("NO_COLOR").is_none();
        lines.with_ansi(colors).with_target(false).init();
    } else {
        lines.json().flatten_event(true).init();
    }
}

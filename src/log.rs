//! How commands that run for long log.

use config::Config;
use logging::Filter;

/// What to log.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Log {
    /// Least severe level to log: off, error, warn, info, debug or trace
    ///
    /// A list such as `info,control=debug` sets another level for a part of the program. Overrides
    /// `SLUICE_LOG`, which overrides `level` in `[log]` of the file; without any of them it is
    /// `RUST_LOG`, else `info`.
    #[arg(long = "log", value_name = "LEVEL")]
    level: Option<Filter>,
}

impl Log {
    /// Starts the log before the file is read.
    pub(crate) fn start(&self) {
        start(self.level.clone());
    }
}

/// Starts the log of a process that has no file.
pub(crate) fn start_plain() {
    start(None);
}

/// Has the log follow the file that was read.
pub(crate) fn follow(config: &Config) {
    logging::configure(config.log.level.as_ref());
}

#[expect(clippy::print_stderr, reason = "there is no log to say it in")]
fn start(level: Option<Filter>) {
    if let Err(error) = logging::start(level) {
        eprintln!("cannot start the log: {error}");
    }
}

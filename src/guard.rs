//! `sluice guard`: stands between an executor and a server it started. Not for people.

use std::process::ExitCode;

/// Runs a server until it ends or its executor does; started by the executor
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the server to its end.
pub(crate) fn run(args: &Args) -> ExitCode {
    worker::run_guard(&args.command)
}

//! `sluice guard`: supervises a model server for its executor. Not for people.

use std::process::ExitCode;

/// Supervise a model server until it or its executor ends; started by the executor
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    crate::program::take_name();
    worker::run_guard(&args.command)
}

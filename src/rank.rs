//! `sluice rank`: the process over one rank of a training job. Started by the worker, not by people.

use std::{path::PathBuf, process::ExitCode};

/// Runs one rank of a job to its end; started by the worker
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to run
    file: PathBuf,
}

/// Runs the rank to its end.
pub(crate) fn run(args: &Args) -> ExitCode {
    crate::logging::start();
    worker::run_rank(&args.file)
}

//! `sluice rank`: supervises one rank of a training job. The worker starts it, not people.

use std::{path::PathBuf, process::ExitCode};

/// Supervise one rank of a job; started by the worker
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File with the rank's specification
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    crate::program::take_name();
    crate::log::start_plain();
    worker::run_rank(&args.file)
}

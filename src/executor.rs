//! `sluice executor`: the process that owns one slice. Started by the worker, not by people.

use std::{path::PathBuf, process::ExitCode};

use worker::ExecutorArgs;

/// Owns one slice and runs its batches; started by the worker
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The label of the slice
    #[arg(long)]
    slice: String,
    /// The directory of its socket
    #[arg(long)]
    run_dir: PathBuf,
    /// Listen on a loopback TCP port instead of a Unix socket
    #[arg(long)]
    tcp: bool,
}

/// Serves until its worker says stop or is gone.
pub(crate) fn run(args: Args) -> ExitCode {
    crate::logging::start();
    let Args { slice, run_dir, tcp } = args;
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            tracing::error!(%error, "cannot find this program");
            return ExitCode::FAILURE;
        }
    };
    worker::run_executor(&ExecutorArgs { slice, run_dir, tcp, program })
}

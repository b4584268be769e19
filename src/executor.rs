//! `sluice executor`: the process that is one lane of a slice. Started by the worker, not by people.

use std::{net::IpAddr, path::PathBuf, process::ExitCode, time::Duration};

use protocol::Seat;
use worker::{ExecutorArgs, Identity};

/// Runs the batches of one lane of a slice; started by the worker
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The GPU's index on its worker
    #[arg(long)]
    gpu: u32,
    /// The slice's position
    #[arg(long)]
    position: String,
    /// Which of the slice's processes it is
    #[arg(long)]
    lane: u32,
    /// The label of the slice
    #[arg(long)]
    slice: String,
    /// The device it may use
    #[arg(long)]
    device: Option<String>,
    /// The directory of its sockets
    #[arg(long)]
    run_dir: PathBuf,
    /// Listen on a TCP port of this address instead of a Unix socket
    #[arg(long)]
    listen: Option<IpAddr>,
    /// Speak TLS there, with the certificate in this file
    #[arg(long, requires = "key", requires = "listen")]
    cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, requires = "cert")]
    key: Option<PathBuf>,
    /// How long it outlives its worker
    #[arg(long)]
    orphan_wait_ms: u64,
}

/// Serves until its worker says stop or is gone.
pub(crate) fn run(args: Args) -> ExitCode {
    crate::logging::start();
    let Args { gpu, position, lane, slice, device, run_dir, listen, cert, key, orphan_wait_ms } =
        args;
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            tracing::error!(%error, "cannot find this program");
            return ExitCode::FAILURE;
        }
    };
    let seat = Seat { gpu, position, lane };
    let orphan_wait = Duration::from_millis(orphan_wait_ms);
    let certificate = cert.zip(key).map(|(cert, key)| Identity { cert, key });
    let args =
        ExecutorArgs { seat, slice, device, run_dir, listen, certificate, orphan_wait, program };
    worker::run_executor(args)
}

//! `sluice executor`: a process that runs batches on a slice. The worker starts it, not people.

use std::{net::IpAddr, path::PathBuf, process::ExitCode, time::Duration};

use protocol::ExecutorId;
use worker::{ExecutorArgs, Identity};

/// Run batches on a slice; started by the worker
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Index of the GPU on its worker
    #[arg(long)]
    gpu: u32,
    /// Position of the slice
    #[arg(long)]
    position: String,
    /// Index of this process among the slice's executors
    #[arg(long)]
    lane: u32,
    /// Label of the slice
    #[arg(long)]
    slice: String,
    /// CUDA device of the slice, or its cores, as cores:2,3
    #[arg(long)]
    device: Option<String>,
    /// Directory for sockets
    #[arg(long)]
    run_dir: PathBuf,
    /// Listen on a TCP port of this address instead of a Unix socket
    #[arg(long)]
    listen: Option<IpAddr>,
    /// Certificate for TLS on that port
    #[arg(long, requires = "key", requires = "listen")]
    cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, requires = "cert")]
    key: Option<PathBuf>,
    /// Milliseconds to wait for a new worker after the old one is gone
    #[arg(long)]
    orphan_wait_ms: u64,
}

/// Serves until its worker stops it or is gone.
pub(crate) fn run(args: Args) -> ExitCode {
    // Before there is any thread but this one.
    let cores = args.device.as_deref().and_then(worker::cores::cores);
    let pinned = cores.map_or(Ok(()), |cores| worker::cores::pin(&cores));
    crate::log::start_plain();
    if let Err(error) = pinned {
        tracing::error!(%error, device = args.device, "failed to run on the slice's cores alone");
        return ExitCode::FAILURE;
    }
    let Args { gpu, position, lane, slice, device, run_dir, listen, cert, key, orphan_wait_ms } =
        args;
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            tracing::error!(%error, "failed to find this program's path");
            return ExitCode::FAILURE;
        }
    };
    let seat = ExecutorId { gpu, position, lane };
    let orphan_wait = Duration::from_millis(orphan_wait_ms);
    let certificate = cert.zip(key).map(|(cert, key)| Identity { cert, key });
    let args =
        ExecutorArgs { seat, slice, device, run_dir, listen, certificate, orphan_wait, program };
    worker::run_executor(args)
}

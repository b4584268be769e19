//! `sluice executor`: a process that runs batches on a slice. The worker starts it, not people.

use std::{net::IpAddr, path::PathBuf, process::ExitCode, time::Duration};

use protocol::ExecutorId;
use worker::{ExecutorArgs, Identity, OnnxRuntime, engine::Surroundings};

use crate::program::{say, take_name, this_program};

/// Instead of running batches it is asked for something, and ends.
const ASKED: [&str; 2] = ["inspect", "try_onnxruntime"];

/// Run batches on a slice; started by the worker
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Index of the GPU on its worker
    #[arg(long, required_unless_present_any = ASKED)]
    gpu: Option<u32>,
    /// Position of the slice
    #[arg(long, required_unless_present_any = ASKED)]
    position: Option<String>,
    /// Index of this process among the slice's executors
    #[arg(long, required_unless_present_any = ASKED)]
    lane: Option<u32>,
    /// Label of the slice
    #[arg(long, required_unless_present_any = ASKED)]
    slice: Option<String>,
    /// Directory for sockets
    #[arg(long, required_unless_present_any = ASKED)]
    run_dir: Option<PathBuf>,
    /// CUDA device of the slice, or its cores, as cores:2,3
    #[arg(long)]
    device: Option<String>,
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
    #[arg(long, default_value_t = 0)]
    orphan_wait_ms: u64,
    /// Library of ONNX Runtime that runs ONNX models
    #[arg(long, conflicts_with = "no_onnxruntime")]
    onnxruntime: Option<PathBuf>,
    /// Why there is none
    #[arg(long)]
    no_onnxruntime: Option<String>,
    /// Load the model of this JSON, print what it is, and exit
    #[arg(long, value_name = "MODEL")]
    inspect: Option<String>,
    /// Load that library, print why it cannot be loaded, and exit
    #[arg(long)]
    try_onnxruntime: Option<PathBuf>,
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
    if let Some(library) = args.try_onnxruntime {
        return match worker::try_onnxruntime(&library) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                say(&why);
                ExitCode::FAILURE
            }
        };
    }
    take_name();
    let program = this_program();
    let onnxruntime = match (args.onnxruntime, args.no_onnxruntime) {
        (Some(library), _) => OnnxRuntime::Found { library, from: "the worker".to_owned() },
        (None, why) => {
            OnnxRuntime::Missing { why: why.unwrap_or_else(|| "the worker named none".to_owned()) }
        }
    };
    let surroundings = Surroundings { program, onnxruntime };
    if let Some(model) = args.inspect {
        say(&worker::run_inspect(&model, &surroundings));
        return ExitCode::SUCCESS;
    }
    let (Some(gpu), Some(position), Some(lane), Some(slice), Some(run_dir)) =
        (args.gpu, args.position, args.lane, args.slice, args.run_dir)
    else {
        return ExitCode::from(2);
    };
    worker::run_executor(ExecutorArgs {
        seat: ExecutorId { gpu, position, lane },
        slice,
        device: args.device,
        run_dir,
        listen: args.listen,
        certificate: args.cert.zip(args.key).map(|(cert, key)| Identity { cert, key }),
        orphan_wait: Duration::from_millis(args.orphan_wait_ms),
        surroundings,
    })
}

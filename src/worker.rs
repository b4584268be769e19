//! `sluice worker`: this machine's GPUs, for a router.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use config::{Config, Join};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::sleep,
};
use worker::{Door, DoorTls, Host, Launch};

use crate::{
    notify,
    program::{ADOPTION_WAIT, bad, chain, failed, gpus, lending, onnxruntime, say, warned},
};

/// How long a stopping worker waits for its replicas to drain.
const DRAIN_WAIT: Duration = Duration::from_secs(30);

/// Run models on this machine's GPUs for a router
///
/// Joins the router, applies its desired state and reports the actual state. Adopts the executors
/// that an earlier worker left running.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 stopped in order, 1 error, 2 usage, 78 invalid configuration.\n\n\
    Signals: TERM or INT drains the replicas, ends every executor and stops; a second one \
    stops at once.\n\n\
    Examples:\n  sluice worker --config /etc/sluice/worker.toml"
)]
pub(crate) struct Args {
    /// Configuration file, with `[join]` and a `[[worker]]` for each GPU
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    log: crate::log::Log,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.log.start();
    let config = match warned(config::load(&args.config)) {
        Ok(config) => config,
        Err(problems) => return bad(&problems),
    };
    let join = match config.check_worker() {
        Ok(join) => join.clone(),
        Err(problems) => return bad(&problems.to_string()),
    };
    let door = match door(&join) {
        Ok(door) => door,
        Err(why) => return bad(&why),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    runtime.block_on(work(&config, join, &door))
}

async fn work(config: &Config, join: Join, door: &Door) -> ExitCode {
    let signals = signal(SignalKind::terminate())
        .and_then(|term| signal(SignalKind::interrupt()).map(|interrupt| (term, interrupt)));
    let (mut term, mut interrupt): (Signal, Signal) = match signals {
        Ok(signals) => signals,
        Err(error) => return failed(&format!("cannot handle signals: {error}")),
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(&format!("cannot find this program's path: {error}")),
    };
    let onnxruntime = onnxruntime(program.clone()).await;
    let gpus = match gpus(config, &join.run_dir, &program) {
        Ok(gpus) => gpus,
        Err(why) => return bad(&why),
    };
    let (run_dir, listen) = (join.run_dir, join.advertise);
    let lending = match lending(config, &run_dir) {
        Ok(lending) => lending,
        Err(why) => return bad(&why),
    };
    let certificate = join.tls.and_then(|tls| tls.identity);
    let orphan_wait = ADOPTION_WAIT;
    say(&format!("onnx       {onnxruntime}"));
    let launch =
        Launch { program, run_dir, listen, certificate, orphan_wait, onnxruntime, lending };
    let host = match Host::start(gpus, launch).await {
        Ok(host) => host,
        Err(error) => return failed(&chain(&error)),
    };
    say(&format!("worker     {}", door.name));
    notify::ready();
    {
        let joined = worker::join(door, &host);
        tokio::pin!(joined);
        tokio::select! {
            never = &mut joined => match never {},
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        notify::stopping();
        tracing::info!(wait_s = DRAIN_WAIT.as_secs(), "worker stopping; draining replicas");
        tokio::select! {
            never = joined => match never {},
            () = host.leave() => {}
            () = sleep(DRAIN_WAIT) => tracing::warn!("replicas not drained in time"),
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
    tracing::info!("stopping all executors");
    host.stop().await;
    ExitCode::SUCCESS
}

fn door(join: &Join) -> Result<Door, String> {
    let token = config::read_token(&join.token_file)?;
    let name = join.name.clone().map_or_else(machine, Ok)?;
    let tls = join.tls.clone().map(|tls| DoorTls { ca: tls.ca, identity: tls.identity });
    Ok(Door { routers: join.routers.clone(), token, name, tls })
}

/// The host name, which is the worker's default name.
fn machine() -> Result<String, String> {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    read.map(|name| name.trim().to_owned())
        .map_err(|error| format!("cannot read the host name; set name in [join]: {error}"))
}

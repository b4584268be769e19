//! `sluice up`: a router and a worker in one process.

mod demo;
mod run_dir;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use config::Config;
use router::{
    compose::{Ended, Router},
    fleet::LOCAL,
    whatif,
};
use worker::{Door, Host, Launch};

use self::run_dir::RunDir;
use crate::program::{ADOPTION_WAIT, bad, chain, failed, gpus, lending, say, warned};

/// Bytes between the router and the worker in this process that may wait to be read.
const WIRE: usize = 64 << 10;

/// Serve models on this machine: router, workers and executors
///
/// Without a file it serves the demo: two small models on two simulated GPUs. Prints `ready` once
/// every model has its minimum number of replicas.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 stopped in order, 1 error, 2 usage, 78 invalid configuration.\n\n\
    Signals: TERM or INT drains and stops, a second one stops at once; HUP reloads the file.\n\n\
    Examples:\n  sluice up\n  sluice up --config configs/router.toml"
)]
pub(crate) struct Args {
    /// Configuration file [default: the demo]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: crate::log::Log,
}

pub(crate) fn run(args: Args) -> ExitCode {
    args.log.start();
    let mut run_dir = match RunDir::make() {
        Ok(run_dir) => run_dir,
        Err(error) => return failed(&format!("cannot create a run directory: {error}")),
    };
    let config = match configuration(&args, &run_dir) {
        Ok(config) => config,
        Err(problems) => return bad(&problems),
    };
    if let Some(state_dir) = &config.router.state_dir {
        run_dir = match RunDir::keep(state_dir) {
            Ok(run_dir) => run_dir,
            Err(error) => return failed(&format!("cannot use {}: {error}", state_dir.display())),
        };
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    runtime.block_on(serve(args, config, &run_dir))
}

async fn serve(args: Args, config: Config, run_dir: &RunDir) -> ExitCode {
    let is_demo = args.config.is_none();
    let (models, gpus) = (objectives(&config), gpus(&config, run_dir.path()));
    let lending = match lending(&config, run_dir.path()) {
        Ok(lending) => lending,
        Err(why) => return bad(&why),
    };
    let router = match crate::router::start(config, args.config).await {
        Ok(router) => router,
        Err(stopped) => return stopped,
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(&format!("cannot find this program's path: {error}")),
    };
    let orphan_wait = if run_dir.outlives() { ADOPTION_WAIT } else { Duration::ZERO };
    let launch = Launch {
        program,
        run_dir: run_dir.path().to_owned(),
        listen: None,
        certificate: None,
        orphan_wait,
        lending,
    };
    let host = match Host::start(gpus, launch).await {
        Ok(host) => host,
        Err(error) => return failed(&chain(&error)),
    };
    crate::router::say_addresses(&router);
    models.iter().for_each(|line| say(line));
    let address = router.inference();
    let warming = router.warm();
    let warm = async {
        warming.await?;
        say("ready");
        if is_demo {
            say(&demo::invitation(address));
        }
        Ok(())
    };
    finish(warm, router, host).await
}

/// Runs until a stop; a model that can never be served ends it at once.
async fn finish(
    warm: impl Future<Output = Result<(), String>>,
    router: Router,
    host: Host,
) -> ExitCode {
    let (ours, theirs) = tokio::io::duplex(WIRE);
    router.welcome(theirs);
    let door =
        Door { routers: Vec::new(), token: String::new(), name: LOCAL.to_owned(), tls: None };
    let run = router.run();
    let ended = {
        let joined = worker::converse(ours, &door, &host);
        tokio::pin!(warm, run, joined);
        let (mut cold, mut parted) = (true, false);
        loop {
            tokio::select! {
                warmed = &mut warm, if cold => match warmed {
                    Ok(()) => cold = false,
                    Err(reason) => break Err(reason),
                },
                Err(error) = &mut joined, if !parted => {
                    // Both ends are in this process: only a stop, or a bug, can disconnect them.
                    tracing::error!(%error, "router and worker disconnected");
                    parted = true;
                }
                ended = &mut run => break Ok(ended),
            }
        }
    };
    host.stop().await;
    match ended {
        Ok(Ended::Finished) => ExitCode::SUCCESS,
        Ok(Ended::Cut | Ended::Hurried) => ExitCode::FAILURE,
        // Printed last, so that it is what people read.
        Err(reason) => bad(&reason),
    }
}

fn configuration(args: &Args, run_dir: &RunDir) -> Result<Config, String> {
    let read = match &args.config {
        Some(file) => config::load(file),
        None => {
            demo::unpack(run_dir.path())
                .map_err(|error| format!("cannot unpack the demo models: {error}"))?;
            config::demo(run_dir.path())
        }
    };
    let config = warned(read)?;
    config.check_up().map_err(|problems| problems.to_string())?;
    whatif::fits(&config)?;
    Ok(config)
}

fn objectives(config: &Config) -> Vec<String> {
    let line = |model: &config::Model| {
        let (slo, target) = (model.slo.as_secs_f64() * 1e3, model.slo_target * 100.0);
        format!("model      {}: {slo} ms for {target} % of requests", model.name)
    };
    config.models.iter().map(line).collect()
}

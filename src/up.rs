//! `sluice up`: a router and a worker in one process.

mod demo;
mod local;
mod run_dir;

use std::{
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use config::Config;
use router::{
    compose::{Ended, Finish, Router},
    handover::{
        give::{Giving, WorkerCall},
        take::Taken,
    },
    whatif,
};
use tokio::sync::{mpsc, watch};
use worker::{GpuSettings, Launch};

use self::{local::LocalWorker, run_dir::RunDir};
use crate::{
    file::Listen,
    notify,
    program::{
        ADOPTION_WAIT, bad, chain, failed, gpus, lend, lending, onnxruntime, say, this_program,
        warned,
    },
};

const COMMAND: &str = "up";

/// Serve models on this machine: router, workers and executors
///
/// Without a file it serves the demo: two small models on two simulated GPUs. Prints `ready` once
/// every model has its minimum number of replicas, or `ready, without NAME: why` where one has failed
/// for good. Exits 78 if no model can be served, or with `ready = "all"` if one cannot.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 stopped in order, 1 error, 2 usage, 78 invalid configuration.\n\n\
    Signals: TERM or INT drains and stops, a second one stops at once; HUP reloads the file;\n\
    USR2 starts the program again to replace this process.\n\n\
    Examples:\n  sluice up\n  sluice up sluice.toml\n  \
    sluice up sluice.toml --listen 0.0.0.0:8000\n  \
    sluice up sluice.toml --replace"
)]
pub(crate) struct Args {
    /// Configuration file [default: the demo]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The same, as a flag
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Take over from the one of this file that runs on this host, without losing a request
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    listen: Listen,
    #[command(flatten)]
    log: crate::log::Log,
}

impl Args {
    fn path(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }
}

pub(crate) fn run(args: Args) -> ExitCode {
    args.log.start();
    args.listen.hold();
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
    match runtime.block_on(serve(args, config, &mut run_dir)) {
        Ok(code) | Err(code) => code,
    }
}

async fn serve(args: Args, mut config: Config, run_dir: &mut RunDir) -> Result<ExitCode, ExitCode> {
    let file = args.path().map(Path::to_owned);
    let is_demo = file.is_none();
    let taken = if args.replace { crate::handover::take(&config, COMMAND).await? } else { None };
    if let Some(shared) = taken.as_ref().and_then(Taken::run_dir) {
        *run_dir = RunDir::inherit(shared.clone());
        if is_demo {
            config = configuration(&args, run_dir).map_err(|problems| bad(&problems))?;
        }
    }
    let (gpus, launch) = worker(&config, run_dir).await?;
    let models = models(&config, &launch);
    let (asking, calls) = mpsc::channel(1);
    let giving = Giving {
        run_dir: (!run_dir.outlives()).then(|| run_dir.path().to_owned()),
        worker: Some(asking),
        ..crate::router::giving(&config, COMMAND)
    };
    let mut router = crate::router::start(config, file, giving, taken).await?;
    let (terms, jobs_dir) = (launch.lending.clone(), run_dir.path().to_owned());
    router.follow(move |config| lend(config, &jobs_dir, &terms));
    let local = LocalWorker::start(gpus, launch).await.map_err(|error| failed(&chain(&error)))?;
    crate::router::say_addresses(&router);
    models.iter().for_each(|line| say(line));
    let (replaces, address) = (router.replaces(), router.inference());
    let (taking, warming) = (router.take_over(), router.warm());
    let warm = async {
        let failed = |why: String| Unready::Stopped(failed(&why));
        taking.await.map_err(|error| failed(format!("cannot replace: {}", chain(&error))))?;
        if replaces {
            run_dir.take_over();
            notify::replaced();
        }
        let signals = crate::handover::replace_on_signal();
        signals.map_err(|error| failed(format!("cannot start: {error}")))?;
        let started = warming.await.map_err(Unready::Model)?;
        crate::router::say_ready(&started);
        if is_demo {
            say(&demo::invitation(address));
        }
        Ok(())
    };
    let finish = finish(warm, router, local, calls).await;
    finish.map(|finish| {
        if finish.replaced {
            run_dir.leave();
        }
        match finish.ended {
            Ended::Finished => ExitCode::SUCCESS,
            Ended::Cut | Ended::Hurried => ExitCode::FAILURE,
        }
    })
}

/// Why it ends before a model could be served.
enum Unready {
    Model(String),
    Stopped(ExitCode),
}

/// Runs until a stop; that nothing can ever be served ends it at once.
async fn finish(
    warm: impl Future<Output = Result<(), Unready>>,
    router: Router,
    local: LocalWorker,
    calls: mpsc::Receiver<WorkerCall>,
) -> Result<Finish, ExitCode> {
    let mut local = pin!(local.run(router.local_door(), calls));
    let (mut warm, mut run) = (pin!(warm), Box::pin(router.run()));
    let (mut cold, mut over) = (true, false);
    let ended = loop {
        tokio::select! {
            warmed = &mut warm, if cold => match warmed {
                Ok(()) => cold = false,
                Err(why) => break Err(why),
            },
            lost = &mut local, if !over => match lost {
                Ok(()) => over = true,
                Err(error) => break Err(Unready::Stopped(failed(&chain(&error)))),
            },
            ended = &mut run => break Ok(ended),
        }
    };
    // The worker stops when the router is gone.
    drop(run);
    if !over && !matches!(ended, Err(Unready::Stopped(_))) {
        let _ = local.await;
    }
    ended.map_err(|why| match why {
        // Printed last, so that it is what people read.
        Unready::Model(reason) => bad(&reason),
        Unready::Stopped(code) => code,
    })
}

/// The worker's GPUs, and how it starts executors and jobs.
async fn worker(config: &Config, run_dir: &RunDir) -> Result<(Vec<GpuSettings>, Launch), ExitCode> {
    let lending = lending(config, run_dir.path()).map_err(|why| bad(&why))?;
    let program = this_program();
    let onnxruntime = onnxruntime(program.clone()).await;
    let gpus = gpus(config, run_dir.path(), &program).map_err(|why| bad(&why))?;
    let orphan_wait = if run_dir.outlives() { ADOPTION_WAIT } else { Duration::ZERO };
    let launch = Launch {
        program,
        run_dir: run_dir.path().to_owned(),
        listen: None,
        certificate: None,
        orphan_wait,
        onnxruntime,
        lending: watch::Sender::new(lending),
    };
    Ok((gpus, launch))
}

fn configuration(args: &Args, run_dir: &RunDir) -> Result<Config, String> {
    let read = match args.path() {
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

/// A line for each model's objective, and what runs those of ONNX.
fn models(config: &Config, launch: &Launch) -> Vec<String> {
    let line = |model: &config::Model| {
        let (slo, target) = (model.slo.as_secs_f64() * 1e3, model.slo_target * 100.0);
        format!("model      {}: {slo} ms for {target} % of requests", model.name)
    };
    let is_onnx = |model: &config::Model| model.engine.name() == "onnx";
    let runtime = config.models.iter().any(is_onnx);
    let runtime = runtime.then(|| format!("onnx       {}", launch.onnxruntime));
    config.models.iter().map(line).chain(runtime).collect()
}

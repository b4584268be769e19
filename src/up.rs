//! `sluice up`: a router and its workers on this machine.

mod demo;
mod plan;
mod run_dir;

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use router::{
    config::{self, Config},
    drain::Ended,
    serve::{Router, Start},
    state::Build,
};
use tokio::sync::mpsc;
use worker::{Launch, Worker};

use self::run_dir::RunDir;

const BAD_CONFIGURATION: u8 = 78;
/// Reports that may wait for the router to read them.
const REPORTS: usize = 256;

/// Serve models on this machine: router, workers and executors
///
/// Without a file it serves the demo, two small models on two simulated GPUs. The line `ready` is
/// printed once every model has the replicas it must have.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 stopped in order, 1 failed, 78 bad configuration.\n\n\
    Signals: TERM or INT drains and stops, a second one stops at once; HUP reads the file again.\n\n\
    Examples:\n  sluice up\n  sluice up --config configs/router.toml")]
pub(crate) struct Args {
    /// The configuration; without one, the demo
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Serves until told to stop.
pub(crate) fn run(args: Args) -> ExitCode {
    crate::logging::start();
    let run_dir = match RunDir::make() {
        Ok(run_dir) => run_dir,
        Err(error) => return failed(&format!("cannot make a directory to run in: {error}")),
    };
    let config = match configuration(&args, &run_dir) {
        Ok(config) => config,
        Err(problems) => return bad(&problems),
    };
    let placement = match plan::placement(&config) {
        Ok(placement) => placement,
        Err(problem) => return bad(&problem),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    runtime.block_on(serve(args, config, placement, &run_dir))
}

async fn serve(
    args: Args,
    config: Config,
    placement: worker::Placement,
    run_dir: &RunDir,
) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(&format!("cannot find this program: {error}")),
    };
    let is_demo = args.config.is_none();
    let models = objectives(&config);
    let (sender, reports) = mpsc::channel(REPORTS);
    let build = Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: env!("SLUICE_REVISION").to_owned(),
    };
    let start = Start { config, file: args.config, reports, build };
    let router = match Router::start(start).await {
        Ok(router) => router,
        Err(error) => return failed(&chain(&error)),
    };
    let launch = Launch { program, run_dir: run_dir.path().to_owned(), tcp: false };
    let worker = match worker::start(placement, launch, &sender) {
        Ok(worker) => worker,
        Err(error) => return bad(&error.to_string()),
    };
    say(&format!("inference  http://{}", router.inference()));
    say(&format!("admin      http://{}", router.admin()));
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
    finish(warm, router, worker).await
}

/// Runs to the end; a model that can never be served ends it at once.
async fn finish(
    warm: impl Future<Output = Result<(), String>>,
    router: Router,
    worker: Worker,
) -> ExitCode {
    let run = router.run();
    tokio::pin!(warm, run);
    let mut cold = true;
    let ended = loop {
        tokio::select! {
            warmed = &mut warm, if cold => match warmed {
                Ok(()) => cold = false,
                Err(reason) => break Err(reason),
            },
            ended = &mut run => break Ok(ended),
        }
    };
    worker.stop().await;
    match ended {
        Ok(Ended::Finished) => ExitCode::SUCCESS,
        Ok(Ended::Cut | Ended::Hurried) => ExitCode::FAILURE,
        // Said last, so that it is what is read.
        Err(reason) => bad(&reason),
    }
}

fn configuration(args: &Args, run_dir: &RunDir) -> Result<Config, String> {
    let read = match &args.config {
        Some(file) => config::load(file),
        None => {
            demo::unpack(run_dir.path()).map_err(|error| format!("cannot unpack: {error}"))?;
            config::demo(run_dir.path())
        }
    };
    let (config, warnings) = read.map_err(|problems| problems.to_string())?;
    for warning in warnings.iter() {
        tracing::warn!(%warning, "configuration");
    }
    config.check_up().map_err(|problems| problems.to_string())?;
    Ok(config)
}

fn objectives(config: &Config) -> Vec<String> {
    let line = |model: &config::Model| {
        let (slo, target) = (model.slo.as_secs_f64() * 1e3, model.slo_target * 100.0);
        format!("model      {}: {slo} ms for {target} % of requests", model.name)
    };
    config.models.iter().map(line).collect()
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Says a line on stdout; a reader that went away is no reason to stop serving.
fn say(line: &str) {
    let mut out = stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

#[expect(clippy::print_stderr, reason = "the last word of a program that cannot go on")]
fn failed(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

#[expect(clippy::print_stderr, reason = "the last word of a program that cannot go on")]
fn bad(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(BAD_CONFIGURATION)
}

//! `sluice router`: the router alone; workers join it.

use std::{path::PathBuf, pin::pin, process::ExitCode};

use config::Config;
use router::{
    compose::{Build, Ended, Finish, Router, Start, Started},
    handover::{give::Giving, take::Taken},
};

use crate::{
    file::{File, Listen},
    handover, notify,
    program::{bad, chain, failed, say, warned},
};

const COMMAND: &str = "router";

/// Run the router; workers on this or other machines join it
///
/// Workers join at `join_listen`. Prints `ready` once every model has its minimum number of replicas,
/// or `ready, without NAME: why` where one has failed for good; without workers the router is live but
/// not ready.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 stopped in order, 1 error, 2 usage, 78 invalid configuration.\n\n\
    Signals: TERM or INT drains and stops, a second one stops at once; HUP reloads the file;\n\
    USR2 starts the program again to replace this process.\n\n\
    Examples:\n  sluice router /etc/sluice/router.toml\n  \
    sluice router /etc/sluice/router.toml --replace"
)]
pub(crate) struct Args {
    #[command(flatten)]
    file: File,
    #[command(flatten)]
    listen: Listen,
    /// Take over from the router of this file that runs on this host, without losing a request
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    log: crate::log::Log,
}

pub(crate) fn run(args: Args) -> ExitCode {
    args.log.start();
    args.listen.hold();
    let config = match configuration(&args) {
        Ok(config) => config,
        Err(problems) => return bad(&problems),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    runtime.block_on(serve(args, config))
}

async fn serve(args: Args, config: Config) -> ExitCode {
    let taken = match args.replace {
        true => handover::take(&config, COMMAND).await,
        false => Ok(None),
    };
    let giving = giving(&config, COMMAND);
    let mut router = match taken {
        Ok(taken) => match start(config, Some(args.file.path().to_owned()), giving, taken).await {
            Ok(router) => router,
            Err(stopped) => return stopped,
        },
        Err(stopped) => return stopped,
    };
    say_addresses(&router);
    let (replaces, take_over, warm) = (router.replaces(), router.take_over(), router.warm());
    let mut run = pin!(router.run());
    tokio::select! {
        taken = take_over => if let Err(error) = taken {
            return failed(&format!("cannot replace: {}", chain(&error)));
        },
        finish = run.as_mut() => return end(finish),
    }
    if let Err(error) = handover::replace_on_signal() {
        return failed(&format!("cannot start: {error}"));
    }
    if replaces {
        notify::replaced()
    } else {
        notify::ready()
    }
    tokio::spawn(async move {
        match warm.await {
            Ok(started) => say_ready(&started),
            Err(error) => tracing::error!(error, "router is not ready"),
        }
    });
    end(run.await)
}

fn end(finish: Finish) -> ExitCode {
    if !finish.replaced {
        notify::stopping();
    }
    match finish.ended {
        Ended::Finished => ExitCode::SUCCESS,
        Ended::Cut | Ended::Hurried => ExitCode::FAILURE,
    }
}

/// How the process of `command` will be replaced by the next.
pub(crate) fn giving(config: &Config, command: &str) -> Giving {
    Giving {
        socket: handover::socket(config),
        command: command.to_owned(),
        program: crate::VERSION.to_owned(),
        run_dir: None,
        worker: None,
    }
}

/// Listens on every address of `config`; on failure prints why and returns the exit code.
pub(crate) async fn start(
    config: Config,
    file: Option<PathBuf>,
    giving: Giving,
    taken: Option<Taken>,
) -> Result<Router, ExitCode> {
    let build = Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: env!("SLUICE_REVISION").to_owned(),
    };
    let token_file = config.router.join_token_file.as_deref();
    let token = token_file.map(config::read_token).transpose().map_err(|why| bad(&why))?;
    let started = Router::start(Start { config, file, token, build, giving, taken }).await;
    started.map_err(|error| failed(&chain(&error)))
}

/// Prints the line that says so, and logs each model that cannot be served.
pub(crate) fn say_ready(started: &Started) {
    for (model, reason) in &started.without {
        tracing::error!(model, reason, "model cannot be served; ready without it");
    }
    say(&started.to_string());
}

/// Prints where `router` listens.
pub(crate) fn say_addresses(router: &Router) {
    let scheme = router.scheme();
    say(&format!("inference  {scheme}://{}", router.inference()));
    say(&format!("admin      {scheme}://{}", router.admin()));
    if let Some(address) = router.join() {
        say(&format!("join       {address}"));
    }
}

fn configuration(args: &Args) -> Result<Config, String> {
    let config = warned(config::load(args.file.path()))?;
    config.check_router().map_err(|problems| problems.to_string())?;
    Ok(config)
}

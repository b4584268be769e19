//! `sluice worker`: this machine's GPUs, for a router.

mod hangup;

use std::{io, path::Path, process::ExitCode, time::Duration};

use config::{Config, Join};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::sleep,
};
use worker::{Door, DoorTls, Host, Launch};

use crate::{
    file::File,
    notify,
    program::{
        ADOPTION_WAIT, bad, chain, failed, gpus, lending, onnxruntime, say, this_program, warned,
    },
    restart::{self, Successor},
};

/// How long a stopping worker waits for its replicas to drain.
const DRAIN_WAIT: Duration = Duration::from_secs(30);

/// Run models on this machine's GPUs for a router
///
/// Its file has `[join]` and a `[[worker]]` for each GPU. Joins the router, applies its desired state and reports the actual state. Adopts the executors
/// that an earlier worker left running.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 stopped in order, 1 error, 2 usage, 78 invalid configuration.\n\n\
    Signals: TERM or INT drains the replicas, ends every executor and stops; a second one \
    stops at once. HUP reloads the file. USR2 restarts the worker as the program that is on disk now: executors and jobs \
    keep running and are adopted.\n\n\
    Examples:\n  sluice worker /etc/sluice/worker.toml"
)]
pub(crate) struct Args {
    #[command(flatten)]
    file: File,
    #[command(flatten)]
    log: crate::log::Log,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.log.start();
    let config = match warned(config::load(args.file.path())) {
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
    let inherited = restart::children();
    runtime.block_on(async {
        tokio::spawn(restart::reap_inherited(inherited));
        work(config, join, &door, args.file.path()).await
    })
}

/// What stops a worker, or restarts it.
struct Signals {
    term: Signal,
    interrupt: Signal,
    restart: Signal,
    hangups: Option<Signal>,
    successor: Successor,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            restart: signal(SignalKind::user_defined2())?,
            hangups: Some(signal(SignalKind::hangup())?),
            successor: Successor::new()?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Returns when the program on disk shall go on, and can.
    async fn restart(restart: &mut Signal, successor: &Successor, config: &Path) {
        let path = successor.path().display().to_string();
        loop {
            restart.recv().await;
            match successor.check(config).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(
                        path,
                        error,
                        "not restarted: the program on disk refuses the file"
                    );
                }
            }
        }
    }
}

async fn work(config: Config, join: Join, door: &Door, file: &Path) -> ExitCode {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return failed(&format!("cannot handle signals: {error}")),
    };
    let program = this_program();
    let onnxruntime = onnxruntime(program.clone()).await;
    let gpus = match gpus(&config, &join.run_dir, &program) {
        Ok(gpus) => gpus,
        Err(why) => return bad(&why),
    };
    let (run_dir, listen) = (join.run_dir, join.advertise);
    let lending = match lending(&config, &run_dir) {
        Ok(lending) => watch::Sender::new(lending),
        Err(why) => return bad(&why),
    };
    let certificate = join.tls.and_then(|tls| tls.identity);
    let orphan_wait = ADOPTION_WAIT;
    let (jobs_dir, terms) = (run_dir.clone(), lending.clone());
    say(&format!("onnx       {onnxruntime}"));
    let launch =
        Launch { program, run_dir, listen, certificate, orphan_wait, onnxruntime, lending };
    let host = match Host::start(gpus, launch).await {
        Ok(host) => host,
        Err(error) => return failed(&chain(&error)),
    };
    if let Some(hangups) = signals.hangups.take() {
        let file = file.to_owned();
        let running = hangup::Running { file, config, run_dir: jobs_dir, lending: terms };
        tokio::spawn(hangup::follow(hangups, running));
    }
    say(&format!("worker     {}", door.name));
    notify::ready();
    if let Ended::Restart = serve(&host, door, &mut signals, file).await {
        host.leave_running().await;
        let Signals { successor, .. } = signals;
        logging::flush();
        return failed(&format!("cannot restart the worker: {}", successor.become_it()));
    }
    tracing::info!("stopping all executors");
    host.stop().await;
    ExitCode::SUCCESS
}

/// Why a worker ends.
enum Ended {
    Stop,
    /// The program on disk goes on.
    Restart,
}

/// Keeps the GPUs as routers want them, until it is to stop and nothing is left to drain.
async fn serve(host: &Host, door: &Door, signals: &mut Signals, file: &Path) -> Ended {
    let joined = worker::join(door, host);
    tokio::pin!(joined);
    let Signals { term, interrupt, restart, successor, .. } = signals;
    tokio::select! {
        never = &mut joined => match never {},
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
        () = Signals::restart(restart, successor, file) => {
            let path = successor.path().display().to_string();
            tracing::info!(path, "worker restarting; executors and jobs keep running");
            return Ended::Restart;
        }
    }
    notify::stopping();
    tracing::info!(
        wait_s = DRAIN_WAIT.as_secs(),
        "worker stopping; draining replicas; a second signal stops at once"
    );
    tokio::select! {
        never = joined => match never {},
        () = host.leave() => {}
        () = sleep(DRAIN_WAIT) => tracing::warn!("replicas not drained in time"),
        () = signals.stop() => {}
    }
    Ended::Stop
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

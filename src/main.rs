//! `sluice`: one program, a subcommand per job.

mod admin;
mod check;
mod executor;
mod guard;
mod job;
mod load;
mod logging;
mod notify;
mod overrides;
mod plan;
mod program;
mod rank;
mod router;
mod simulate;
mod status;
mod up;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// A router makes some twenty allocations for each request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SLUICE_REVISION"), ")");

/// Serves models within the objective you state for each.
///
/// Clients speak the Open Inference Protocol over HTTP; operators state an objective per model
/// ("50 ms for 99 % of requests"); Sluice batches, admits and refuses so that it is kept.
#[derive(Debug, Parser)]
#[command(name = "sluice", version = VERSION, after_help = "Examples:\n  \
    sluice up                              serve the demo on 127.0.0.1:8000\n  \
    sluice check configs/router.toml       say everything wrong with a configuration\n  \
    sluice up --config configs/router.toml serve your own models\n  \
    sluice status --watch                  watch it from another terminal\n  \
    sluice load --model digits --rate 200  ask it 200 times a second and report")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Router(router::Args),
    Worker(worker::Args),
    Check(check::Args),
    Load(Box<load::Args>),
    Plan(plan::Args),
    Simulate(simulate::Args),
    Status(status::Args),
    Job(Box<job::Args>),
    Drain(overrides::Drain),
    Return(overrides::Return),
    Pin(overrides::Pin),
    Unpin(overrides::Unpin),
    /// Print a completion script for your shell
    ///
    /// For example `sluice completions bash > /etc/bash_completion.d/sluice`.
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    #[command(hide = true)]
    Executor(executor::Args),
    #[command(hide = true)]
    Guard(guard::Args),
    #[command(hide = true)]
    Rank(rank::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Up(args) => up::run(args),
        Command::Router(args) => router::run(args),
        Command::Worker(args) => worker::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Load(args) => load::run(*args),
        Command::Plan(args) => plan::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Job(args) => job::run(&args),
        Command::Drain(args) => overrides::drain(&args),
        Command::Return(args) => overrides::give_back(&args),
        Command::Pin(args) => overrides::pin(&args),
        Command::Unpin(args) => overrides::unpin(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "sluice", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
        Command::Executor(args) => executor::run(args),
        Command::Guard(args) => guard::run(&args),
        Command::Rank(args) => rank::run(&args),
    }
}

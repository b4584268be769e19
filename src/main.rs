//! `sluice`: one program, a subcommand per job.

mod admin;
mod check;
mod events;
mod executor;
mod file;
mod guard;
mod handover;
mod help_page;
mod job;
mod key;
mod load;
mod log;
mod notify;
mod overrides;
mod plan;
mod program;
mod rank;
mod reload;
mod restart;
mod router;
mod simulate;
mod status;
mod up;
mod usage;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// A router makes about twenty allocations per request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SLUICE_REVISION"), ")");

/// Inference router for GPU fleets
///
/// Give each model a latency objective ("50 ms for 99 % of requests"). Sluice meets it with as few
/// GPUs as possible. Clients speak the Open Inference Protocol over HTTP.
#[derive(Debug, Parser)]
#[command(name = "sluice", version = VERSION, after_help = "Examples:\n  \
    sluice up                              serve the demo on 127.0.0.1:8000\n  \
    sluice check configs/router.toml       validate a configuration file\n  \
    sluice up configs/router.toml          serve your own models\n  \
    sluice status --watch                  watch the fleet from another terminal\n  \
    sluice load --model digits --rate 200  send 200 requests/s and report")]
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
    Events(events::Args),
    Reload(reload::Args),
    Job(Box<job::Args>),
    Key(key::Args),
    Drain(overrides::Drain),
    Return(overrides::Return),
    Pin(overrides::Pin),
    Unpin(overrides::Unpin),
    /// Print a shell completion script
    ///
    /// Example: `sluice completions bash > /etc/bash_completion.d/sluice`.
    Completions {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print the reference page of this command line
    #[command(hide = true)]
    HelpPage,
    /// Check that a command line is one, and do nothing
    #[command(hide = true, disable_help_flag = true)]
    Parses {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    #[command(hide = true)]
    Executor(executor::Args),
    #[command(hide = true)]
    Guard(guard::Args),
    #[command(hide = true)]
    Rank(rank::Args),
}

fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => usage::explain::<Cli>(error),
    };
    logging::flush();
    code
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Up(args) => up::run(args),
        Command::Router(args) => router::run(args),
        Command::Worker(args) => worker::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Load(args) => load::run(*args),
        Command::Plan(args) => plan::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Job(args) => job::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Drain(args) => overrides::drain(&args),
        Command::Return(args) => overrides::give_back(&args),
        Command::Pin(args) => overrides::pin(&args),
        Command::Unpin(args) => overrides::unpin(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "sluice", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
        Command::HelpPage => {
            program::say(help_page::page(Cli::command()).trim_end());
            ExitCode::SUCCESS
        }
        Command::Parses { words } => {
            let parsed = Cli::try_parse_from(std::iter::once("sluice".to_owned()).chain(words));
            parsed.map_or_else(usage::explain::<Cli>, |_| ExitCode::SUCCESS)
        }
        Command::Executor(args) => executor::run(args),
        Command::Guard(args) => guard::run(&args),
        Command::Rank(args) => rank::run(&args),
    }
}

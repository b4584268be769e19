//! `sluice status`: the state of the fleet in the terminal.

mod paint;
mod picture;
mod runtimes;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use router::state::State;

use self::paint::Paint;
use crate::admin::{Admin, pause};

const STATE: &str = "/admin/v1/state";
const EVERY: Duration = Duration::from_secs(1);
/// Moves to the top left and clears what is below.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Show the fleet, its models and whether they meet their objectives
///
/// Talks to a running router's admin port. Uses color on a terminal unless NO_COLOR is set.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 success, 1 router unreachable, 2 usage.\n\n\
    Examples:\n  \
    sluice status\n  \
    sluice status --watch\n  \
    sluice status --url http://router:8002 --key-file admin.key --format json")]
pub(crate) struct Args {
    #[command(flatten)]
    admin: Admin,
    /// Refresh every second until interrupted
    #[arg(long)]
    watch: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For scripts: the document of /admin/v1/state
    Json,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let terminal = io::stdout().is_terminal();
    let paint = Paint::new(terminal && std::env::var_os("NO_COLOR").is_none());
    let asked = if args.watch { watch(args, paint) } else { show(args, paint) };
    match asked {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // If stderr is closed too, there is nowhere to report it.
            let _ = writeln!(io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn show(args: &Args, paint: Paint) -> Result<(), String> {
    let text = ask(args, paint)?;
    print(&text)
}

/// Keeps polling an unreachable router: it may be restarting.
fn watch(args: &Args, paint: Paint) -> Result<(), String> {
    let clear = if io::stdout().is_terminal() { REDRAW } else { "" };
    loop {
        let text = ask(args, paint).unwrap_or_else(|why| format!("{why}\n"));
        print(&format!("{clear}{text}"))?;
        pause(EVERY)?;
    }
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("cannot write: {error}"))
}

fn ask(args: &Args, paint: Paint) -> Result<String, String> {
    let body = args.admin.get(STATE)?;
    match args.format {
        Format::Json => Ok(String::from_utf8_lossy(&body).into_owned() + "\n"),
        Format::Text => {
            let state: State = serde_json::from_slice(&body).map_err(|error| {
                format!(
                    "the response of {} is not from a router of this version: {error}",
                    args.admin.url
                )
            })?;
            Ok(text(&state, paint))
        }
    }
}

/// All of it, at most 80 columns wide.
fn text(state: &State, paint: Paint) -> String {
    let mut text = tables::head(state, paint) + &tables::lead(&state.lead, paint);
    for worker in &state.workers {
        text += &tables::worker(worker, paint);
        for gpu in &worker.gpus {
            text += "\n";
            text += &picture::gpu(gpu, paint);
        }
    }
    text += &tables::pins(state, paint);
    text += &runtimes::runtimes(state);
    text += &tables::models(state, paint);
    text += &tables::latencies(state, paint);
    text += &tables::capacity(state);
    text + &tables::tenants(state) + &tables::problems(state, paint)
}

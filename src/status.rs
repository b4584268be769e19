//! `sluice status`: what is going on, in the terminal.

mod paint;
mod picture;
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
use crate::admin::{Door, pause};

const STATE: &str = "/admin/v1/state";
const EVERY: Duration = Duration::from_secs(1);
/// Moves to the top left and clears what is below.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Show the fleet, its models and how well they keep their objectives
///
/// Asks a running router's admin port. Colours only on a terminal, and none with NO_COLOR set.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 shown, 1 the router could not be asked.\n\n\
    Examples:\n  \
    sluice status\n  \
    sluice status --watch\n  \
    sluice status --url http://router:8002 --key-file admin.key --format json")]
pub(crate) struct Args {
    #[command(flatten)]
    door: Door,
    /// Show it again every second until interrupted
    #[arg(long)]
    watch: bool,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For scripts: the document of /admin/v1/state as it is
    Json,
}

/// Shows it once, or until interrupted.
pub(crate) fn run(args: &Args) -> ExitCode {
    let terminal = io::stdout().is_terminal();
    let paint = Paint::new(terminal && std::env::var_os("NO_COLOR").is_none());
    let asked = if args.watch { watch(args, paint) } else { show(args, paint) };
    match asked {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Nothing is left to say it to if stderr is gone too.
            let _ = writeln!(io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn show(args: &Args, paint: Paint) -> Result<(), String> {
    let text = ask(args, paint)?;
    tell(&text)
}

/// A router that cannot be asked is waited for: it may be starting again.
fn watch(args: &Args, paint: Paint) -> Result<(), String> {
    let clear = if io::stdout().is_terminal() { REDRAW } else { "" };
    loop {
        let text = ask(args, paint).unwrap_or_else(|why| format!("{why}\n"));
        tell(&format!("{clear}{text}"))?;
        pause(EVERY)?;
    }
}

fn tell(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let told = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    told.map_err(|error| format!("cannot write: {error}"))
}

fn ask(args: &Args, paint: Paint) -> Result<String, String> {
    let body = args.door.get(STATE)?;
    match args.format {
        Format::Json => Ok(String::from_utf8_lossy(&body).into_owned() + "\n"),
        Format::Text => {
            let state: State = serde_json::from_slice(&body).map_err(|error| {
                format!("{} is not a router of this version: {error}", args.door.url)
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
    text + &tables::models(state, paint) + &tables::tenants(state) + &tables::problems(state, paint)
}

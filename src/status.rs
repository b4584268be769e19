//! `sluice status`: what is going on, in the terminal.

mod paint;
mod picture;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use loadtest::target::{Target, Url};
use router::state::State;

use self::paint::Paint;

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
    /// The router's admin address
    #[arg(long, default_value = "http://127.0.0.1:8002")]
    url: String,
    /// Show it again every second until interrupted
    #[arg(long)]
    watch: bool,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The environment variable that holds the admin key
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// The file that holds the admin key
    #[arg(long, value_name = "FILE", conflicts_with = "key_env")]
    key_file: Option<PathBuf>,
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
    let asked = key(args).and_then(|key| {
        if args.watch {
            watch(args, key.as_deref(), paint)
        } else {
            show(args, key.as_deref(), paint)
        }
    });
    match asked {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Nothing is left to say it to if stderr is gone too.
            let _ = writeln!(io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn show(args: &Args, key: Option<&str>, paint: Paint) -> Result<(), String> {
    let text = ask(args, key, paint)?;
    tell(&text)
}

/// A router that cannot be asked is waited for: it may be starting again.
fn watch(args: &Args, key: Option<&str>, paint: Paint) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let clear = if io::stdout().is_terminal() { REDRAW } else { "" };
    loop {
        let text = ask(args, key, paint).unwrap_or_else(|why| format!("{why}\n"));
        tell(&format!("{clear}{text}"))?;
        runtime.block_on(tokio::time::sleep(EVERY));
    }
}

fn tell(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let told = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    told.map_err(|error| format!("cannot write: {error}"))
}

fn key(args: &Args) -> Result<Option<String>, String> {
    let from_file = |file: &PathBuf| {
        let read = fs::read_to_string(file);
        read.map_err(|error| format!("cannot read the key in {}: {error}", file.display()))
    };
    let from_environment = |name: &String| {
        std::env::var(name)
            .map_err(|_| format!("the environment has no {name} to take the key from"))
    };
    let text = match (&args.key_file, &args.key_env) {
        (Some(file), _) => from_file(file)?,
        (None, Some(name)) => from_environment(name)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(text.trim().to_owned()))
}

fn ask(args: &Args, key: Option<&str>, paint: Paint) -> Result<String, String> {
    let url = Url::parse(&args.url).map_err(|error| chain(&error))?;
    let path = format!("{}{STATE}", url.prefix);
    let page = Target::find(url, key).and_then(|router| router.get(&path));
    let page = page.map_err(|error| chain(&error))?;
    match args.format {
        Format::Json => Ok(String::from_utf8_lossy(&page.body).into_owned() + "\n"),
        Format::Text => {
            let state: State = serde_json::from_slice(&page.body).map_err(|error| {
                format!("{} is not a router of this version: {error}", args.url)
            })?;
            Ok(text(&state, paint))
        }
    }
}

/// All of it, at most 80 columns wide.
fn text(state: &State, paint: Paint) -> String {
    let mut text = tables::head(state, paint);
    for worker in &state.workers {
        text += &tables::worker(worker, paint);
        for gpu in &worker.gpus {
            text += "\n";
            text += &picture::gpu(gpu, paint);
        }
    }
    text + &tables::models(state, paint) + &tables::tenants(state) + &tables::problems(state, paint)
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

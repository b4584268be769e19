//! `sluice job`: training jobs on idle slices, from the terminal.

mod tables;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use router::jobs::{Brief, JobView, Slices, State, Submission};
use serde::Deserialize;

use crate::{
    admin::{Door, Question, pause},
    program::{failed, say},
};

const JOBS: &str = "/admin/v1/jobs";
/// How often a log is asked for more, and a job for its end.
const EVERY: Duration = Duration::from_millis(300);

/// Run training jobs on idle slices
///
/// Asks a running router's admin port. Jobs must be allowed by `[loans]` in its configuration, and
/// where keys are configured by one with the jobs scope.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 done, 1 refused or failed, 2 usage.\n\n\
    Examples:\n  \
    sluice job submit --slices 2..4 --profile 2g.20gb --name bert -- python3 train.py\n  \
    sluice job list\n  \
    sluice job show 7\n  \
    sluice job logs -f 7\n  \
    sluice job cancel 7")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Queue a job and print its number
    Submit(Box<Submit>),
    /// List jobs, the newest first
    List(Plain),
    /// Show all that is known of a job: why it waits, when it may start, what it did
    Show(One),
    /// Print what a job printed
    Logs(Logs),
    /// End a job, with its notice to checkpoint
    Cancel(One),
}

#[derive(Debug, clap::Args)]
struct Submit {
    #[command(flatten)]
    door: Door,
    /// How many slices it runs on: a number, or MIN..MAX
    #[arg(long, default_value_t)]
    slices: Slices,
    /// The smallest profile it takes, such as 2g.20gb
    #[arg(long)]
    profile: Option<String>,
    /// Memory it needs on each slice
    #[arg(long, value_name = "MIB", default_value_t)]
    memory_mib: u64,
    /// Whose it is
    #[arg(long)]
    tenant: Option<String>,
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// How long it takes on its fewest slices
    #[arg(long, value_name = "SECONDS")]
    takes_s: Option<u64>,
    /// In how many seconds it must have ended; needs --takes-s
    #[arg(long, value_name = "SECONDS")]
    deadline_s: Option<u64>,
    /// How often it is started again after it failed by itself
    #[arg(long)]
    retries: Option<u32>,
    /// A variable of its environment
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// Your own name for the submission: sent again with it, the job is not queued twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// How to write it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The program and its arguments; no shell reads them
    #[arg(last = true, required = true)]
    argv: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Plain {
    #[command(flatten)]
    door: Door,
    /// How to write it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, clap::Args)]
struct One {
    #[command(flatten)]
    door: Door,
    /// The job's number
    id: u64,
    /// How to write it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, clap::Args)]
struct Logs {
    #[command(flatten)]
    door: Door,
    /// The job's number
    id: u64,
    /// Which rank
    #[arg(long, default_value_t)]
    rank: u32,
    /// Print what comes, until the job ends; the exit code is 1 if it did not end well
    #[arg(short, long)]
    follow: bool,
}

/// How it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For scripts: the router's answer as it is
    Json,
}

#[derive(Debug, Deserialize)]
struct List {
    jobs: Vec<Brief>,
}

#[derive(Debug, Deserialize)]
struct Page {
    text: String,
    next: u64,
    over: bool,
}

/// Does it.
pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.what {
        What::Submit(submit) => self::submit(submit),
        What::List(plain) => list(plain),
        What::Show(one) => show(one, "GET"),
        What::Cancel(one) => show(one, "DELETE"),
        What::Logs(logs) => return self::logs(logs).unwrap_or_else(|why| failed(&why)),
    };
    done.map_or_else(|why| failed(&why), |()| ExitCode::SUCCESS)
}

fn submit(args: &Submit) -> Result<(), String> {
    let submission = Submission {
        argv: args.argv.clone(),
        name: args.name.clone(),
        tenant: args.tenant.clone(),
        environment: args.environment.iter().cloned().collect::<BTreeMap<_, _>>(),
        slices: args.slices,
        profile: args.profile.clone(),
        memory_mib: args.memory_mib,
        takes_s: args.takes_s,
        deadline_s: args.deadline_s,
        retries: args.retries,
    };
    let body = serde_json::to_vec(&submission).map_err(|error| error.to_string())?;
    let key = args.idempotency_key.as_ref();
    if key.is_some_and(|key| key.contains(|c: char| !c.is_ascii_graphic())) {
        return Err("the idempotency key may hold only visible ASCII".to_owned());
    }
    let headers = key.map_or_else(String::new, |key| format!("idempotency-key: {key}\r\n"));
    let question = Question { method: "POST", headers: &headers, body: &body };
    let answer = args.door.ask(JOBS, &question)?;
    if args.format == Format::Json {
        return as_it_is(&answer);
    }
    let job: JobView = read(&answer)?;
    say(&job.brief.id.to_string());
    Ok(())
}

fn list(args: &Plain) -> Result<(), String> {
    let answer = args.door.get(JOBS)?;
    if args.format == Format::Json {
        return as_it_is(&answer);
    }
    let List { jobs } = read(&answer)?;
    print(&tables::list(&jobs))
}

fn show(args: &One, method: &str) -> Result<(), String> {
    let question = Question { method, ..Question::default() };
    let answer = args.door.ask(&format!("{JOBS}/{}", args.id), &question)?;
    if args.format == Format::Json {
        return as_it_is(&answer);
    }
    print(&tables::show(&read(&answer)?))
}

fn logs(args: &Logs) -> Result<ExitCode, String> {
    let mut from = String::new();
    loop {
        let path = format!("{JOBS}/{}/logs?rank={}{from}", args.id, args.rank);
        let page: Page = read(&args.door.get(&path)?)?;
        print(&page.text)?;
        from = format!("&from={}", page.next);
        match (page.text.is_empty(), args.follow, page.over) {
            (_, false, _) => return Ok(ExitCode::SUCCESS),
            (true, true, true) => break,
            (true, true, false) => pause(EVERY)?,
            (false, true, _) => {}
        }
    }
    let job: JobView = read(&args.door.get(&format!("{JOBS}/{}", args.id))?)?;
    let Brief { id, state, reason, .. } = job.brief;
    if state == State::Done {
        return Ok(ExitCode::SUCCESS);
    }
    Err(format!("job {id} is {}: {reason}", state.name()))
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} has no ="))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn read<T: for<'a> Deserialize<'a>>(answer: &[u8]) -> Result<T, String> {
    serde_json::from_slice(answer)
        .map_err(|error| format!("this is not a router of this version: {error}"))
}

fn as_it_is(answer: &[u8]) -> Result<(), String> {
    print(&(String::from_utf8_lossy(answer).into_owned() + "\n"))
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let told = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    told.map_err(|error| format!("cannot write: {error}"))
}

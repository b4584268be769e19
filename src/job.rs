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
    admin::{Admin, Call, pause},
    program::{failed, note, say},
};

const JOBS: &str = "/admin/v1/jobs";
/// Poll interval for new log output and for the end of a job.
const EVERY: Duration = Duration::from_millis(300);

/// Run training jobs on idle slices
///
/// Talks to a running router's admin port. The program must be allowed by `[loans]` in the router's
/// configuration. If API keys are configured, the key needs the scope jobs or admin.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 success, 1 error, 2 usage.\n\n\
    Examples:\n  \
    sluice job submit --slices 2..4 --profile 2g.20gb --name bert -- python3 train.py\n  \
    sluice job submit --follow -- python3 train.py\n  \
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
    /// List jobs, newest first
    List(Plain),
    /// Show a job: why it waits, when it may start, and its history
    Show(One),
    /// Print the output of a job
    Logs(Logs),
    /// Cancel a job; it gets its notice period to checkpoint
    Cancel(One),
}

#[derive(Debug, clap::Args)]
struct Submit {
    #[command(flatten)]
    admin: Admin,
    /// Number of slices: N, or MIN..MAX
    #[arg(long, default_value_t)]
    slices: Slices,
    /// Smallest slice profile the job can use, such as 2g.20gb
    #[arg(long)]
    profile: Option<String>,
    /// Memory needed on each slice
    #[arg(long, value_name = "MIB", default_value_t)]
    memory_mib: u64,
    /// Tenant that owns the job
    #[arg(long)]
    tenant: Option<String>,
    /// Name shown in lists
    #[arg(long)]
    name: Option<String>,
    /// Expected run time on the minimum number of slices
    #[arg(long, value_name = "SECONDS")]
    takes_s: Option<u64>,
    /// Seconds until the job must have ended; needs --takes-s
    #[arg(long, value_name = "SECONDS")]
    deadline_s: Option<u64>,
    /// Number of restarts after failures
    #[arg(long)]
    retries: Option<u32>,
    /// Environment variable for the job; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// Key that makes a repeated submission return the first job instead of queuing another
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print the job's output until it ends; exits with 1 unless the job is done
    ///
    /// Its number, and what it waits for, go to stderr. Ctrl-C ends the output, not the job.
    #[arg(short, long, conflicts_with = "format")]
    follow: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Program and arguments, run without a shell
    #[arg(last = true, required = true)]
    argv: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Plain {
    #[command(flatten)]
    admin: Admin,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, clap::Args)]
struct One {
    #[command(flatten)]
    admin: Admin,
    /// Job number
    id: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, clap::Args)]
struct Logs {
    #[command(flatten)]
    admin: Admin,
    /// Job number
    id: u64,
    /// Rank to show
    #[arg(long, default_value_t)]
    rank: u32,
    /// Follow the output until the job ends; exits with 1 unless the job is done
    #[arg(short, long)]
    follow: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// For scripts: the router's response
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

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.what {
        What::Submit(submit) => {
            return self::submit(submit).unwrap_or_else(|why| failed(&why));
        }
        What::List(plain) => list(plain),
        What::Show(one) => show(one, "GET"),
        What::Cancel(one) => show(one, "DELETE"),
        What::Logs(logs) => return self::logs(logs).unwrap_or_else(|why| failed(&why)),
    };
    done.map_or_else(|why| failed(&why), |()| ExitCode::SUCCESS)
}

fn submit(args: &Submit) -> Result<ExitCode, String> {
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
        return Err("the idempotency key must be visible ASCII".to_owned());
    }
    let headers = key.map_or_else(String::new, |key| format!("idempotency-key: {key}\r\n"));
    let call = Call { method: "POST", headers: &headers, body: &body };
    let response = args.admin.send(JOBS, &call)?;
    if args.format == Format::Json {
        return print_raw(&response).map(|()| ExitCode::SUCCESS);
    }
    let job: JobView = read(&response)?;
    let id = job.brief.id;
    if args.follow {
        return follow(&args.admin, id, 0);
    }
    say(&id.to_string());
    Ok(ExitCode::SUCCESS)
}

/// Prints what a rank of the job prints until the job ends, and on stderr what becomes of the job.
fn follow(admin: &Admin, id: u64, rank: u32) -> Result<ExitCode, String> {
    let (mut from, mut told) = (String::new(), String::new());
    loop {
        let Brief { state, reason, .. } = brief(admin, id)?;
        let news = format!("job {id} is {}: {reason}", state.name());
        if news != told && !state.is_over() {
            note(&news);
            told = news;
        }
        loop {
            let page = page(admin, id, rank, &from)?;
            print(&page.text)?;
            from = format!("&from={}", page.next);
            match (page.text.is_empty(), page.over) {
                (true, true) => return verdict(brief(admin, id)?),
                (true, false) => break,
                (false, _) => {}
            }
        }
        pause(EVERY)?;
    }
}

fn brief(admin: &Admin, id: u64) -> Result<Brief, String> {
    let job: JobView = read(&admin.get(&format!("{JOBS}/{id}"))?)?;
    Ok(job.brief)
}

fn page(admin: &Admin, id: u64, rank: u32, from: &str) -> Result<Page, String> {
    read(&admin.get(&format!("{JOBS}/{id}/logs?rank={rank}{from}"))?)
}

fn verdict(job: Brief) -> Result<ExitCode, String> {
    let Brief { id, state, reason, .. } = job;
    if state == State::Done {
        return Ok(ExitCode::SUCCESS);
    }
    Err(format!("job {id} is {}: {reason}", state.name()))
}

fn list(args: &Plain) -> Result<(), String> {
    let response = args.admin.get(JOBS)?;
    if args.format == Format::Json {
        return print_raw(&response);
    }
    let List { jobs } = read(&response)?;
    print(&tables::list(&jobs))
}

fn show(args: &One, method: &str) -> Result<(), String> {
    let call = Call { method, ..Call::default() };
    let response = args.admin.send(&format!("{JOBS}/{}", args.id), &call)?;
    if args.format == Format::Json {
        return print_raw(&response);
    }
    print(&tables::show(&read(&response)?))
}

fn logs(args: &Logs) -> Result<ExitCode, String> {
    if args.follow {
        return follow(&args.admin, args.id, args.rank);
    }
    let page = page(&args.admin, args.id, args.rank, "")?;
    print(&page.text)?;
    Ok(ExitCode::SUCCESS)
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("{text:?} has no =; give NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn read<T: for<'a> Deserialize<'a>>(response: &[u8]) -> Result<T, String> {
    serde_json::from_slice(response)
        .map_err(|error| format!("the response is not from a router of this version: {error}"))
}

fn print_raw(response: &[u8]) -> Result<(), String> {
    print(&(String::from_utf8_lossy(response).into_owned() + "\n"))
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("cannot write: {error}"))
}

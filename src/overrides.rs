//! `sluice drain`, `return`, `pin` and `unpin`: operators' overrides.

mod preview;

use std::{
    fmt::Write as _,
    io::{self, Write},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use policy::fleet::SliceId;
use router::{fleet::LOCAL, progress::DrainPhase, state::WorkerState};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    admin::{Admin, Call, pause},
    program::failed,
};

/// Poll interval while waiting for a drain.
const EVERY: Duration = Duration::from_millis(300);

/// Drain a worker for maintenance
///
/// Replicas stop once their successors elsewhere are ready, jobs get their notice period, and nothing
/// new is placed there until `sluice return`. Without --apply, only a preview is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 applied, or preview printed; 1 error; 2 usage.\n\n\
    Examples:\n  \
    sluice drain alpha\n  \
    sluice drain alpha --apply --wait")]
pub(crate) struct Drain {
    /// Worker name
    worker: String,
    /// Apply the change; without it, only print a preview
    #[arg(long)]
    apply: bool,
    /// Wait until the worker is empty
    #[arg(long, requires = "apply")]
    wait: bool,
    #[command(flatten)]
    operator: Operator,
}

/// Return a drained worker to service
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 applied, 1 error, 2 usage.\n\nExamples:\n  sluice return alpha"
)]
pub(crate) struct Return {
    /// Worker name
    worker: String,
    #[command(flatten)]
    operator: Operator,
}

/// Pin a replica of a model to a slice, or move one there
///
/// A slice is WORKER/gpuINDEX/POSITION, or gpuINDEX/POSITION on the router's own machine. Without
/// --apply, only a preview is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 applied, or preview printed; 1 error; 2 usage.\n\n\
    Examples:\n  \
    sluice pin digits alpha/gpu0/3g.40gb@4 --apply\n  \
    sluice pin digits beta/gpu1/3g.40gb@0 --from alpha/gpu0/3g.40gb@4 --apply")]
pub(crate) struct Pin {
    /// Model name
    model: String,
    /// Slice to pin the replica to
    #[arg(value_name = "SLICE")]
    place: SliceAddress,
    /// Slice whose replica stops once the new one is ready
    #[arg(long, value_name = "SLICE")]
    from: Option<SliceAddress>,
    /// Apply the change; without it, only print a preview
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    operator: Operator,
}

/// Remove a pin so the planner can move the replica
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 applied, 1 error, 2 usage.\n\n\
    Examples:\n  sluice unpin digits alpha/gpu0/3g.40gb@4")]
pub(crate) struct Unpin {
    /// Model name
    model: String,
    /// Slice the replica is pinned to
    #[arg(value_name = "SLICE")]
    place: SliceAddress,
    #[command(flatten)]
    operator: Operator,
}

/// The router, and the name recorded with a change.
#[derive(Debug, clap::Args)]
struct Operator {
    #[command(flatten)]
    admin: Admin,
    /// Name to record with the change [default: your login]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// A slice address of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SliceAddress(SliceId);

impl FromStr for SliceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a slice; give WORKER/gpuINDEX/POSITION");
        let (rest, position) = text.rsplit_once('/').ok_or_else(wrong)?;
        let (worker, gpu) = rest.rsplit_once('/').unwrap_or((LOCAL, rest));
        let gpu = gpu.strip_prefix("gpu").and_then(|index| index.parse().ok()).ok_or_else(wrong)?;
        Ok(Self(SliceId { worker: worker.to_owned(), gpu, position: position.to_owned() }))
    }
}

#[derive(Debug, Deserialize)]
struct Workers {
    workers: Vec<WorkerState>,
}

pub(crate) fn drain(args: &Drain) -> ExitCode {
    let asked = json!({"by": args.operator.by(), "apply": args.apply});
    let path = format!("/admin/v1/workers/{}/drain", escaped(&args.worker));
    let done = args.operator.post(&path, &asked).and_then(|result| {
        print(&preview::drained(&args.worker, &result))?;
        if args.wait { wait(args) } else { Ok(()) }
    });
    ended(done)
}

pub(crate) fn give_back(args: &Return) -> ExitCode {
    let path = format!("/admin/v1/workers/{}/drain", escaped(&args.worker));
    let done = args.operator.delete(&path, "");
    ended(done.and_then(|()| print(&format!("{} is back in service\n", args.worker))))
}

pub(crate) fn pin(args: &Pin) -> ExitCode {
    let SliceAddress(SliceId { worker, gpu, position }) = &args.place;
    let from = args.from.as_ref().map(|SliceAddress(seat)| seat);
    let asked = json!({"worker": worker, "gpu": gpu, "position": position, "from": from,
                       "by": args.operator.by(), "apply": args.apply});
    let path = format!("/admin/v1/models/{}/pin", escaped(&args.model));
    let done = args.operator.post(&path, &asked);
    ended(done.and_then(|result| print(&preview::pinned(&args.model, &result))))
}

pub(crate) fn unpin(args: &Unpin) -> ExitCode {
    let SliceAddress(SliceId { worker, gpu, position }) = &args.place;
    let (worker, position) = (escaped(worker), escaped(position));
    let query = format!("worker={worker}&gpu={gpu}&position={position}&");
    let path = format!("/admin/v1/models/{}/pin", escaped(&args.model));
    let done = args.operator.delete(&path, &query);
    ended(done.and_then(|()| print(&format!("removed the pin of {}\n", args.model))))
}

impl Operator {
    /// The name given, or the login.
    fn by(&self) -> String {
        let login = || std::env::var("USER").ok().filter(|name| !name.is_empty());
        self.by.clone().or_else(login).unwrap_or_else(|| "admin".to_owned())
    }

    fn post(&self, path: &str, asked: &Value) -> Result<Value, String> {
        let body = asked.to_string();
        let call = Call { method: "POST", headers: "", body: body.as_bytes() };
        read(&self.admin.send(path, &call)?)
    }

    fn delete(&self, path: &str, query: &str) -> Result<(), String> {
        let call = Call { method: "DELETE", ..Call::default() };
        let path = format!("{path}?{query}by={}", escaped(&self.by()));
        self.admin.send(&path, &call).map(drop)
    }
}

/// Prints what still holds a worker, each once, until it is empty.
fn wait(args: &Drain) -> Result<(), String> {
    let mut printed = Vec::new();
    loop {
        let Workers { workers } = read(&args.operator.admin.get("/admin/v1/workers")?)?;
        let worker = workers.into_iter().find(|worker| worker.name == args.worker);
        let Some(drain) = worker.and_then(|worker| worker.drain) else {
            return Err(format!("the drain of {} was cancelled", args.worker));
        };
        if drain.state == DrainPhase::Drained {
            return print(&format!("{} is drained\n", args.worker));
        }
        for hold in drain.holds {
            if !printed.contains(&hold) {
                print(&format!("  {hold}\n"))?;
                printed.push(hold);
            }
        }
        pause(EVERY)?;
    }
}

fn ended(done: Result<(), String>) -> ExitCode {
    done.map_or_else(|why| failed(&why), |()| ExitCode::SUCCESS)
}

fn read<T: for<'a> Deserialize<'a>>(response: &[u8]) -> Result<T, String> {
    serde_json::from_slice(response)
        .map_err(|error| format!("the response is not from a router of this version: {error}"))
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("cannot write: {error}"))
}

/// Percent-encodes a part of a path or a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_address_parses_with_and_without_worker() {
        let seat = |text: &str| text.parse::<SliceAddress>().map(|SliceAddress(seat)| seat);
        let local = SliceId { worker: LOCAL.into(), gpu: 0, position: "3g.40gb@4".into() };
        assert_eq!(seat("gpu0/3g.40gb@4"), Ok(local.clone()));
        let far = SliceId { worker: "alpha".into(), gpu: 12, ..local };
        assert_eq!(seat("alpha/gpu12/3g.40gb@4"), Ok(far));
        for wrong in ["", "gpu0", "alpha/3g.40gb@4", "alpha/0/3g.40gb@4", "alpha/gpux/whole"] {
            assert!(seat(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_percent_encoded() {
        assert_eq!(escaped("rack 1/a?b#c%"), "rack%201%2Fa%3Fb%23c%25");
        assert_eq!(escaped("alpha-1.eu"), "alpha-1.eu");
    }
}

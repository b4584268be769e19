//! `sluice drain`, `return`, `pin` and `unpin`: what an operator wants of the fleet.

mod told;

use std::{
    fmt::Write as _,
    io::{self, Write},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use policy::fleet::SliceId;
use router::{fleet::LOCAL, place::DrainPhase, state::WorkerState};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    ask::{Door, Question, pause},
    program::failed,
};

/// How often is asked whether a worker is drained.
const EVERY: Duration = Duration::from_millis(300);

/// Take a worker out for maintenance
///
/// Its replicas are placed elsewhere before they leave, its jobs get their notice, and nothing new is
/// put there until `sluice return`. Without --apply it only says what that would lead to.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 done or told, 1 refused.\n\n\
    Examples:\n  \
    sluice drain alpha\n  \
    sluice drain alpha --apply --wait")]
pub(crate) struct Drain {
    /// The worker
    worker: String,
    /// Do it
    #[arg(long)]
    apply: bool,
    /// Return once nothing is there any more
    #[arg(long, requires = "apply")]
    wait: bool,
    #[command(flatten)]
    asker: Asker,
}

/// Let a drained worker serve again
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 done, 1 refused.\n\nExamples:\n  sluice return alpha")]
pub(crate) struct Return {
    /// The worker
    worker: String,
    #[command(flatten)]
    asker: Asker,
}

/// Keep a replica of a model where you say, or move one there
///
/// A place is WORKER/gpuINDEX/POSITION as the console and the state have them, or without the worker on
/// a router's own machine. Without --apply it only says what that would lead to.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 done or told, 1 refused.\n\n\
    Examples:\n  \
    sluice pin digits alpha/gpu0/3g.40gb@4 --apply\n  \
    sluice pin digits beta/gpu1/3g.40gb@0 --from alpha/gpu0/3g.40gb@4 --apply")]
pub(crate) struct Pin {
    /// The model
    model: String,
    /// Where it shall be
    place: Place,
    /// A place that the model leaves for it, once the new replica is ready
    #[arg(long, value_name = "PLACE")]
    from: Option<Place>,
    /// Do it
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    asker: Asker,
}

/// Let a pinned replica be anywhere again
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 done, 1 refused.\n\n\
    Examples:\n  sluice unpin digits alpha/gpu0/3g.40gb@4")]
pub(crate) struct Unpin {
    /// The model
    model: String,
    /// Where it is pinned
    place: Place,
    #[command(flatten)]
    asker: Asker,
}

/// Which router is asked, and by whom.
#[derive(Debug, clap::Args)]
struct Asker {
    #[command(flatten)]
    door: Door,
    /// Who you are, for the log and for those who look; else your login
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// A slice, as the command line has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place(SliceId);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no place; give WORKER/gpuINDEX/POSITION");
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

/// Drains.
pub(crate) fn drain(args: &Drain) -> ExitCode {
    let asked = json!({"by": args.asker.by(), "apply": args.apply});
    let path = format!("/admin/v1/workers/{}/drain", escaped(&args.worker));
    let done = args.asker.post(&path, &asked).and_then(|told| {
        print(&told::drained(&args.worker, &told))?;
        if args.wait { wait(args) } else { Ok(()) }
    });
    ended(done)
}

/// Returns to service.
pub(crate) fn give_back(args: &Return) -> ExitCode {
    let path = format!("/admin/v1/workers/{}/drain", escaped(&args.worker));
    let done = args.asker.delete(&path, "");
    ended(done.and_then(|()| print(&format!("{} may serve again\n", args.worker))))
}

/// Pins, or moves.
pub(crate) fn pin(args: &Pin) -> ExitCode {
    let Place(SliceId { worker, gpu, position }) = &args.place;
    let from = args.from.as_ref().map(|Place(seat)| seat);
    let asked = json!({"worker": worker, "gpu": gpu, "position": position, "from": from,
                       "by": args.asker.by(), "apply": args.apply});
    let path = format!("/admin/v1/models/{}/pin", escaped(&args.model));
    let done = args.asker.post(&path, &asked);
    ended(done.and_then(|told| print(&told::pinned(&args.model, &told))))
}

/// Unpins.
pub(crate) fn unpin(args: &Unpin) -> ExitCode {
    let Place(SliceId { worker, gpu, position }) = &args.place;
    let (worker, position) = (escaped(worker), escaped(position));
    let query = format!("worker={worker}&gpu={gpu}&position={position}&");
    let path = format!("/admin/v1/models/{}/pin", escaped(&args.model));
    let done = args.asker.delete(&path, &query);
    ended(done.and_then(|()| print(&format!("{} may be anywhere again\n", args.model))))
}

impl Asker {
    /// As whom: the name given, or the one logged in.
    fn by(&self) -> String {
        let login = || std::env::var("USER").ok().filter(|name| !name.is_empty());
        self.by.clone().or_else(login).unwrap_or_else(|| "admin".to_owned())
    }

    fn post(&self, path: &str, asked: &Value) -> Result<Value, String> {
        let body = asked.to_string();
        let question = Question { method: "POST", headers: "", body: body.as_bytes() };
        read(&self.door.ask(path, &question)?)
    }

    fn delete(&self, path: &str, query: &str) -> Result<(), String> {
        let question = Question { method: "DELETE", ..Question::default() };
        let path = format!("{path}?{query}by={}", escaped(&self.by()));
        self.door.ask(&path, &question).map(drop)
    }
}

/// Says what still holds a worker, each once, until nothing does.
fn wait(args: &Drain) -> Result<(), String> {
    let mut told = Vec::new();
    loop {
        let Workers { workers } = read(&args.asker.door.get("/admin/v1/workers")?)?;
        let worker = workers.into_iter().find(|worker| worker.name == args.worker);
        let Some(drain) = worker.and_then(|worker| worker.drain) else {
            return Err(format!("{} is drained no more", args.worker));
        };
        if drain.state == DrainPhase::Drained {
            return print(&format!("{} is drained\n", args.worker));
        }
        for hold in drain.holds {
            if !told.contains(&hold) {
                print(&format!("  {hold}\n"))?;
                told.push(hold);
            }
        }
        pause(EVERY)?;
    }
}

fn ended(done: Result<(), String>) -> ExitCode {
    done.map_or_else(|why| failed(&why), |()| ExitCode::SUCCESS)
}

fn read<T: for<'a> Deserialize<'a>>(answer: &[u8]) -> Result<T, String> {
    serde_json::from_slice(answer)
        .map_err(|error| format!("this is not a router of this version: {error}"))
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let told = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    told.map_err(|error| format!("cannot write: {error}"))
}

/// A part of a path or a query, whatever is in it.
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
    fn a_place_is_read_with_and_without_its_worker() {
        let seat = |text: &str| text.parse::<Place>().map(|Place(seat)| seat);
        let local = SliceId { worker: LOCAL.into(), gpu: 0, position: "3g.40gb@4".into() };
        assert_eq!(seat("gpu0/3g.40gb@4"), Ok(local.clone()));
        let far = SliceId { worker: "alpha".into(), gpu: 12, ..local };
        assert_eq!(seat("alpha/gpu12/3g.40gb@4"), Ok(far));
        for wrong in ["", "gpu0", "alpha/3g.40gb@4", "alpha/0/3g.40gb@4", "alpha/gpux/whole"] {
            assert!(seat(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_of_any_bytes_stays_one_part_of_a_path() {
        assert_eq!(escaped("rack 1/a?b#c%"), "rack%201%2Fa%3Fb%23c%25");
        assert_eq!(escaped("alpha-1.eu"), "alpha-1.eu");
    }
}

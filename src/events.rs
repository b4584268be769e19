//! `sluice events`: what changed in the fleet, and why.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use router::events::{Event, Events};

use crate::{
    admin::{Admin, pause},
    program::failed,
};

/// Poll interval of --follow.
const EVERY: Duration = Duration::from_secs(1);

/// Show what changed in the fleet, and why
///
/// Prints the last thousand events the router remembers, oldest first: replicas started and stopped,
/// models ready and not ready, workers, reloads, overrides, jobs, loans, leadership.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 success, 1 router unreachable, 2 usage.\n\n\
    Examples:\n  \
    sluice events\n  \
    sluice events --follow\n  \
    sluice events --format json | jq 'select(.kind == \"replica_failed\")'")]
pub(crate) struct Args {
    #[command(flatten)]
    admin: Admin,
    /// Print new events as they come, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people: a line per event
    #[default]
    Text,
    /// For scripts: a JSON object per line
    Json,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    show(args).map_or_else(|why| failed(&why), |()| ExitCode::SUCCESS)
}

fn show(args: &Args) -> Result<(), String> {
    let (mut started_ms, mut after) = (None, 0);
    loop {
        let page = args.admin.get(&format!("/admin/v1/events/recent?after={after}"));
        match page.and_then(|page| read(&page)) {
            // A router that started again counts from 1.
            Ok(found) if started_ms.is_some_and(|known| known != found.started_ms) => {
                (started_ms, after) = (None, 0);
                continue;
            }
            Ok(found) => {
                started_ms = Some(found.started_ms);
                after = found.events.last().map_or(after, |event| event.seq);
                print(&text(&found.events, args.format)?)?;
            }
            // Once followed, it may be starting again.
            Err(why) if !args.follow || started_ms.is_none() => return Err(why),
            Err(_) => {}
        }
        if !args.follow {
            return Ok(());
        }
        pause(EVERY)?;
    }
}

fn read(page: &[u8]) -> Result<Events, String> {
    serde_json::from_slice(page)
        .map_err(|error| format!("the response is not from a router of this version: {error}"))
}

fn text(events: &[Event], format: Format) -> Result<String, String> {
    let mut text = String::new();
    for event in events {
        let line = match format {
            Format::Text => line(event),
            Format::Json => serde_json::to_string(event).map_err(|error| error.to_string())?,
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    Ok(text)
}

fn line(event: &Event) -> String {
    let Event { at_ms, change, .. } = event;
    let time = logging::time_text(Duration::from_millis(*at_ms));
    // To the second, in UTC.
    let time = time.get(..19).unwrap_or(&time);
    let why = change.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    format!("{time}Z  {:<18} {}{why}", change.kind, change.what)
}

fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("cannot write: {error}"))
}

#[cfg(test)]
mod tests {
    use router::events::Change;

    use super::*;

    #[test]
    fn event_is_a_line_with_its_time_and_reason() {
        let change = Change {
            kind: "replica_ready".to_owned(),
            subject: "digits".to_owned(),
            what: "digits is ready on gpu0:3g@4".to_owned(),
            why: Some("demand rose".to_owned()),
        };
        let event = Event { seq: 3, at_ms: 1_795_032_301_500, change };
        assert_eq!(
            text(std::slice::from_ref(&event), Format::Text).unwrap(),
            "2026-11-18T20:05:01Z  replica_ready      digits is ready on gpu0:3g@4: demand rose\n"
        );
        let json = text(&[event], Format::Json).unwrap();
        assert!(
            json.starts_with("{\"seq\":3,\"at_ms\":1795032301500,\"kind\":\"replica_ready\""),
            "{json}"
        );
    }
}

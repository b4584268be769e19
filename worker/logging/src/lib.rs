//! The log of a process: lines on stderr, readable on a terminal and JSON elsewhere.
//!
//! No line waits for its reader. Every line goes into a bounded queue, which one thread writes to
//! stderr; when the queue is full, lines are dropped and counted. The module `line` writes lines by hand
//! where a `tracing` event would cost too much or has to say fields that are not known in advance, and
//! the module `filter` says which lines are wanted.

mod filter;
mod line;
mod panic;
mod queue;
mod stderr;

use std::{
    io,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use arc_swap::ArcSwap;
use tracing::Level;
use tracing_subscriber::{
    Registry, filter::Targets, fmt, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

pub use self::{
    filter::{BadFilter, Filter},
    line::{Format, Head, Line, time_text},
};
use self::{queue::Queue, stderr::Stderr};

/// The environment variable that selects what is logged.
pub const VARIABLE: &str = "SLUICE_LOG";

/// How long a process that ends waits for its last lines to be read.
const LAST_LINES: Duration = Duration::from_secs(1);

static LOG: OnceLock<Log> = OnceLock::new();

struct Log {
    queue: Arc<Queue>,
    format: Format,
    /// What overrules the configuration.
    given: Option<Filter>,
    filter: ArcSwap<Filter>,
    in_force: reload::Handle<Targets, Registry>,
}

/// Starts logging to stderr what is `given`, or else what the environment selects; without effect if it
/// was started before.
///
/// # Errors
///
/// The system gives no thread for the writer.
pub fn start(given: Option<Filter>) -> io::Result<()> {
    if LOG.get().is_some() {
        return Ok(());
    }
    let filter = given.clone().or_else(|| variable(VARIABLE)).or_else(by_default);
    let filter = filter.unwrap_or_default();
    let (queue, format) = (Arc::<Queue>::default(), Format::of_stderr());
    let writing = Arc::clone(&queue);
    thread::Builder::new().name("log".to_owned()).spawn(move || writing.write(Stderr, format))?;
    let (layer, in_force) = reload::Layer::new(filter.targets().clone());
    let log = Log { queue, format, given, filter: ArcSwap::from_pointee(filter), in_force };
    if LOG.set(log).is_err() {
        return Ok(());
    }
    let lines = fmt::layer().with_writer(|| Events).log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(layer);
    // Whoever set another subscriber has the events; lines made by hand are written all the same.
    let _ = match format {
        Format::Json => registry.with(lines.json().flatten_event(true)).try_init(),
        Format::Plain { colors } => {
            registry.with(lines.with_ansi(colors).with_target(false)).try_init()
        }
    };
    panic::hook();
    Ok(())
}

/// Logs what the configuration selects from now on, unless something was given at the start.
pub fn configure(configured: Option<&Filter>) {
    let Some(log) = LOG.get() else { return };
    let filter = log.given.as_ref().or(configured).cloned().or_else(by_default).unwrap_or_default();
    if filter == **log.filter.load() {
        return;
    }
    // It fails only if the subscriber is gone, and with it every event.
    let _ = log.in_force.reload(filter.targets().clone());
    log.filter.store(Arc::new(filter));
}

/// What Rust programs are usually told by.
fn by_default() -> Option<Filter> {
    variable("RUST_LOG")
}

fn variable(name: &str) -> Option<Filter> {
    std::env::var(name).ok()?.parse().ok()
}

/// What is logged now, as [`Filter`] reads it; nothing before the start.
pub fn selected() -> Option<String> {
    LOG.get().map(|log| log.filter.load().to_string())
}

/// Whether lines of `level` and `target` are logged.
pub fn is_on(level: Level, target: &str) -> bool {
    LOG.get().is_some_and(|log| log.filter.load().targets().would_enable(target, &level))
}

/// Logs a line made by hand, whatever is selected.
pub fn write(level: Level, target: &str, message: &str, fields: impl FnOnce(&mut Line<'_>)) {
    relay(&Head { level, target, message, timestamp: None }, fields);
}

/// As the function `write`, with a time of its own.
pub fn relay(head: &Head<'_>, fields: impl FnOnce(&mut Line<'_>)) {
    if let Some(log) = LOG.get() {
        line::with(log.format, head, |line| {
            fields(line);
            log.queue.push(line.end());
        });
    }
}

/// Says `text` on stderr, after all that was logged; whether logging was started.
pub fn say(text: &str) -> bool {
    let Some(log) = LOG.get() else { return false };
    log.queue.push(format!("{text}\n").as_bytes());
    true
}

/// Lines dropped since the start, because their reader was too slow.
pub fn dropped() -> u64 {
    LOG.get().map_or(0, |log| log.queue.dropped())
}

/// Waits until all that was logged is written, but not long.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.queue.flush(LAST_LINES);
    }
}

/// What the subscriber writes each event to, as one piece.
struct Events;

impl io::Write for Events {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(log) = LOG.get() {
            log.queue.push(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

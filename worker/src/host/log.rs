//! An executor's log, through a pipe that both ends hold open for reading and writing.
//!
//! It therefore never breaks: the next worker opens it again and reads on. It never blocks either:
//! what an executor says while nobody reads, beyond what the pipe holds, is lost.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{CWD, Mode, OFlags, mkfifoat, open},
    io::Errno,
};
use serde_json::{Map, Value};
use tokio::{
    net::unix::pipe::{OpenOptions, Receiver},
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::lines::{Allowance, Line, Lines};

const MAX_LOG_LINE: usize = 4 << 10;

const LINES_PER_SECOND: u32 = 200;

/// How long the last words may take to come through the pipe.
const LAST_WORDS: Duration = Duration::from_millis(20);

pub(super) struct Log {
    path: PathBuf,
    finish: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Log {
    /// Makes the pipe if it is not there, and reads it into our own log.
    pub(super) fn relay(path: PathBuf, slice: &str) -> io::Result<Self> {
        match mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let receiver = OpenOptions::new().read_write(true).open_receiver(&path)?;
        let (finish, finished) = oneshot::channel();
        let task = tokio::spawn(relay(receiver, finished, slice.to_owned()));
        Ok(Self { path, finish, task })
    }

    pub(super) fn end(&self) -> io::Result<OwnedFd> {
        writing_end(&self.path)
    }

    pub(super) async fn close(self) {
        // It reads until told.
        let _ = self.finish.send(());
        let _ = self.task.await;
        let _ = std::fs::remove_file(&self.path);
    }
}

fn writing_end(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

async fn relay(receiver: Receiver, mut finished: oneshot::Receiver<()>, slice: String) {
    let mut lines = Lines::new(receiver, MAX_LOG_LINE);
    let mut allowance = Allowance::new(LINES_PER_SECOND, Instant::now());
    loop {
        tokio::select! {
            line = lines.next() => match line {
                Ok(Some(line)) => say(&line, &mut allowance, &slice),
                Ok(None) | Err(_) => return,
            },
            _ = &mut finished => break,
        }
    }
    while let Ok(Ok(Some(line))) = timeout(LAST_WORDS, lines.next()).await {
        say(&line, &mut allowance, &slice);
    }
}

fn say(line: &Line, allowance: &mut Allowance, slice: &str) {
    let (passes, dropped) = allowance.pass(Instant::now());
    if dropped > 0 {
        tracing::warn!(slice, dropped, "executor logs too fast; lines dropped");
    }
    if !passes {
        return;
    }
    let text = String::from_utf8_lossy(&line.bytes);
    match Event::parse(&text) {
        Some(event) if io::stderr().is_terminal() => event.show(slice),
        // One write, so that it stays one line among those of other threads. A line that cannot be
        // written is lost, as our own are.
        Some(event) => drop(io::stderr().write_all(event.with_slice(&text, slice).as_bytes())),
        None => tracing::info!(slice, %text, cut = line.cut, "executor output"),
    }
}

/// A line of an executor's own log, which is JSON because it writes to a pipe.
struct Event(Map<String, Value>);

impl Event {
    fn parse(text: &str) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_str(text).ok()?;
        let is_event =
            ["timestamp", "level", "message"].iter().all(|key| fields.contains_key(*key));
        is_event.then_some(Self(fields))
    }

    fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// The line as it came, and which slice it is of unless it says so itself.
    fn with_slice(&self, text: &str, slice: &str) -> String {
        let rest = text.trim_start().strip_prefix('{').filter(|_| !self.0.contains_key("slice"));
        match rest {
            Some(rest) => format!("{{\"slice\":{},{rest}\n", Value::from(slice)),
            None => format!("{text}\n"),
        }
    }

    /// The message with its fields after it, for a person.
    fn sentence(&self) -> String {
        let mut sentence = self.text("message").to_owned();
        for (key, value) in &self.0 {
            if !matches!(key.as_str(), "timestamp" | "level" | "message" | "target") {
                // Writing to a string cannot fail.
                let _ = write!(sentence, " {key}={value}");
            }
        }
        sentence
    }

    fn show(&self, slice: &str) {
        let said = self.sentence();
        match self.text("level") {
            "ERROR" => tracing::error!(slice, "executor: {said}"),
            "WARN" => tracing::warn!(slice, "executor: {said}"),
            "DEBUG" => tracing::debug!(slice, "executor: {said}"),
            "TRACE" => tracing::trace!(slice, "executor: {said}"),
            _ => tracing::info!(slice, "executor: {said}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"timestamp":"t","level":"WARN","message":"replica failed","model":"a"}"#;

    #[test]
    fn executor_log_lines_pass_as_they_are_with_their_slice() {
        let passed = Event::parse(LINE).unwrap().with_slice(LINE, "gpu0:3g@4");
        assert_eq!(passed, LINE.replacen('{', r#"{"slice":"gpu0:3g@4","#, 1) + "\n");
        let named = LINE.replace("model", "slice");
        assert_eq!(Event::parse(&named).unwrap().with_slice(&named, "b"), format!("{named}\n"));
    }

    #[test]
    fn executor_log_lines_are_sentences_on_a_terminal() {
        assert_eq!(Event::parse(LINE).unwrap().sentence(), r#"replica failed model="a""#);
    }

    #[test]
    fn output_that_is_no_log_line_is_not_taken_for_one() {
        for text in ["thread 'main' panicked", "{}", "[1]", r#"{"message":"m"}"#, "{\"level\":"] {
            assert!(Event::parse(text).is_none(), "{text}");
        }
    }
}

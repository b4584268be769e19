//! One line of the log, written by hand into one buffer.

use std::{
    cell::RefCell,
    fmt::{self, Debug, Display, Formatter},
    io::{IsTerminal, Write as _, stderr},
    time::{Duration, SystemTime},
};

use serde_json::Value;
use tracing::Level;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    /// For a terminal.
    Plain {
        colors: bool,
    },
}

impl Format {
    pub(crate) fn of_stderr() -> Self {
        if stderr().is_terminal() {
            Self::Plain { colors: std::env::var_os("NO_COLOR").is_none() }
        } else {
            Self::Json
        }
    }
}

/// How a line begins and ends.
#[derive(Clone, Copy, Debug)]
pub struct Head<'h> {
    pub level: Level,
    pub target: &'h str,
    pub message: &'h str,
    /// When, if it was said earlier.
    pub timestamp: Option<&'h str>,
}

/// A line that gets its fields.
pub struct Line<'b> {
    buffer: &'b mut Vec<u8>,
    format: Format,
    target: &'b str,
}

impl Debug for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Line").field(&String::from_utf8_lossy(self.buffer)).finish()
    }
}

impl<'b> Line<'b> {
    pub(crate) fn new(buffer: &'b mut Vec<u8>, format: Format, target: &'b str) -> Self {
        Self { buffer, format, target }
    }

    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        let is_word = |byte: &u8| byte.is_ascii_graphic() && *byte != b'"';
        match self.format {
            Format::Plain { .. }
                if !value.is_empty() && value.bytes().all(|byte| is_word(&byte)) =>
            {
                self.buffer.extend_from_slice(value.as_bytes());
            }
            Format::Plain { .. } | Format::Json => quoted(self.buffer, value),
        }
    }

    /// Something whose text needs no escape.
    pub fn display(&mut self, key: &str, value: impl Display) {
        self.key(key);
        let quote = if self.format == Format::Json { "\"" } else { "" };
        // Writing to memory cannot fail.
        let _ = write!(self.buffer, "{quote}{value}{quote}");
    }

    pub fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        // Writing to memory cannot fail.
        let _ = write!(self.buffer, "{value}");
    }

    /// A time in whole microseconds, under a key that ends in `_us`.
    pub fn micros(&mut self, key: &str, time: Duration) {
        self.number(key, time.as_micros().try_into().unwrap_or(u64::MAX));
    }

    pub fn value(&mut self, key: &str, value: &Value) {
        match value {
            Value::String(text) => self.text(key, text),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => {
                self.key(key);
                let _ = write!(self.buffer, "{value}");
            }
        }
    }

    /// The whole line, with its end.
    pub(crate) fn end(&mut self) -> &[u8] {
        finish(self.buffer, self.format, self.target);
        self.buffer
    }

    fn key(&mut self, key: &str) {
        match self.format {
            Format::Json => {
                self.buffer.push(b',');
                quoted(self.buffer, key);
                self.buffer.push(b':');
            }
            Format::Plain { colors } => {
                let [on, off] =
                    if colors { ["\x1b[3m", "\x1b[0m\x1b[2m=\x1b[0m"] } else { ["", "="] };
                self.buffer.push(b' ');
                for part in [on, key, off] {
                    self.buffer.extend_from_slice(part.as_bytes());
                }
            }
        }
    }
}

/// Lends a line in this thread's buffer to `write`.
pub(crate) fn with(format: Format, head: &Head<'_>, write: impl FnOnce(&mut Line<'_>)) {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with(|buffer| {
        // A panic while a line is written logs a line of its own.
        let mut own = Vec::new();
        let mut kept = buffer.try_borrow_mut();
        let buffer = kept.as_deref_mut().unwrap_or(&mut own);
        buffer.clear();
        begin(buffer, format, head);
        write(&mut Line::new(buffer, format, head.target));
    });
}

/// Begins a line: when, how grave, and what happened.
pub(crate) fn begin(buffer: &mut Vec<u8>, format: Format, head: &Head<'_>) {
    let Head { level, message, timestamp: said, .. } = *head;
    match format {
        Format::Json => {
            buffer.extend_from_slice(b"{\"timestamp\":");
            match said {
                Some(said) => quoted(buffer, said),
                None => {
                    buffer.push(b'"');
                    timestamp(buffer, now());
                    buffer.push(b'"');
                }
            }
            buffer.extend_from_slice(b",\"level\":\"");
            buffer.extend_from_slice(level.as_str().as_bytes());
            buffer.extend_from_slice(b"\",\"message\":");
            quoted(buffer, message);
        }
        Format::Plain { colors } => {
            let color = match level {
                Level::ERROR => "31",
                Level::WARN => "33",
                Level::INFO => "32",
                Level::DEBUG => "34",
                Level::TRACE => "35",
            };
            let dim = |buffer: &mut Vec<u8>, code: &str| {
                if colors {
                    let _ = write!(buffer, "\x1b[{code}m");
                }
            };
            dim(buffer, "2");
            match said {
                Some(said) => buffer.extend_from_slice(said.as_bytes()),
                None => timestamp(buffer, now()),
            }
            dim(buffer, "0");
            buffer.push(b' ');
            dim(buffer, color);
            let _ = write!(buffer, "{level:>5}");
            dim(buffer, "0");
            buffer.push(b' ');
            buffer.extend_from_slice(message.as_bytes());
        }
    }
}

pub(crate) fn finish(buffer: &mut Vec<u8>, format: Format, target: &str) {
    if format == Format::Json {
        buffer.extend_from_slice(b",\"target\":");
        quoted(buffer, target);
        buffer.push(b'}');
    }
    buffer.push(b'\n');
}

/// `text` as a JSON string.
fn quoted(buffer: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        buffer.push(b'"');
        buffer.extend_from_slice(text.as_bytes());
        buffer.push(b'"');
    } else {
        // Writing a string to memory cannot fail.
        let _ = serde_json::to_writer(buffer, text);
    }
}

#[expect(clippy::disallowed_methods, reason = "a line says when, for people")]
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Time since 1970 as lines have it, such as `2026-11-18T20:05:01.234567Z`.
pub fn time_text(since: Duration) -> String {
    let mut text = Vec::new();
    timestamp(&mut text, since);
    String::from_utf8(text).unwrap_or_default()
}

/// Time since 1970, as `2026-11-18T20:05:01.234567Z`.
fn timestamp(buffer: &mut Vec<u8>, since: Duration) {
    let seconds = since.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let mut put = |range: std::ops::Range<usize>, mut number: u64| {
        for digit in text[range].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    };
    put(0..4, year);
    put(5..7, month);
    put(8..10, day);
    put(11..13, second / 3_600);
    put(14..16, second / 60 % 60);
    put(17..19, second % 60);
    put(20..26, since.subsec_micros().into());
    buffer.extend_from_slice(&text);
}

/// Year, month and day of a day since 1970-01-01, counted in years that begin in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format, fields: impl FnOnce(&mut Line<'_>)) -> String {
        let mut written = String::new();
        let (target, message) = ("access", "request answered");
        let head = Head { level: Level::WARN, target, message, timestamp: None };
        with(format, &head, |line| {
            fields(line);
            written = String::from_utf8(line.end().to_vec()).unwrap();
        });
        written
    }

    #[test]
    fn line_is_json_whatever_its_fields_hold() {
        let odd = "a \"b\" \\ \n \u{7f} ü";
        let line = written(Format::Json, |line| {
            line.text("path", odd);
            line.number("status", 503);
            line.micros("took_us", Duration::from_millis(2));
            line.value("error", &serde_json::json!({"a": [1, null]}));
        });
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
        let mut line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["timestamp"].take().as_str().unwrap().len(), 27);
        let wanted = serde_json::json!({"timestamp": null, "level": "WARN",
            "message": "request answered", "path": odd, "status": 503, "took_us": 2000,
            "error": {"a": [1, null]}, "target": "access"});
        assert_eq!(line, wanted);
    }

    #[test]
    fn line_on_a_terminal_is_a_message_and_its_fields() {
        let fields = |line: &mut Line<'_>| {
            line.text("path", "/v2");
            line.text("error", "not here");
        };
        let line = written(Format::Plain { colors: false }, fields);
        let (_, rest) = line.split_once(' ').unwrap();
        assert_eq!(rest, " WARN request answered path=/v2 error=\"not here\"\n");
        assert!(written(Format::Plain { colors: true }, fields).contains("\u{1b}[33m WARN"));
    }

    #[test]
    fn timestamps_know_the_calendar() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00.000042Z"),
            (951_782_399, "2000-02-28T23:59:59.000042Z"),
            (951_782_400, "2000-02-29T00:00:00.000042Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000042Z"),
            (1_795_032_301, "2026-11-18T20:05:01.000042Z"),
        ] {
            let mut text = Vec::new();
            timestamp(&mut text, Duration::new(seconds, 42_000));
            assert_eq!(String::from_utf8(text).unwrap(), wanted);
        }
    }
}

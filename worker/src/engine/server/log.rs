//! What a server says on its output: passed on, and the end of it remembered.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use crate::said;

/// The longest line that is passed on, in bytes.
const MAX_LINE: usize = 2 << 10;

/// The target of lines that name none.
const TARGET: &str = "engine";

/// Lines that are remembered.
const REMEMBERED: usize = 12;

/// How long to wait for the rest of what an ended server has said.
const REST_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
pub(super) struct Log(Arc<(Mutex<Said>, Condvar)>);

#[derive(Default)]
struct Said {
    lines: VecDeque<String>,
    over: bool,
}

impl Log {
    pub(super) fn relay(&self, output: impl Read, model: &str) {
        let mut output = BufReader::new(output);
        while let Some(text) = next_line(&mut output) {
            said::log(TARGET, "model server wrote a line", &text, &[("model", model)]);
            let mut said = self.0.0.lock();
            if said.lines.len() == REMEMBERED {
                said.lines.pop_front();
            }
            said.lines.push_back(text);
        }
        self.0.0.lock().over = true;
        self.0.1.notify_all();
    }

    pub(super) fn last_words(&self) -> String {
        let mut said = self.0.0.lock();
        // What it started may hold its output open; then its last words are those read so far.
        self.0.1.wait_while_for(&mut said, |said| !said.over, REST_WAIT);
        said.lines.make_contiguous().join("\n")
    }
}

/// The next line without its end, cut if it is long, or `None` when there are no more.
fn next_line(output: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let read = output.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line).ok()?;
    if read == MAX_LINE && !line.ends_with(b"\n") {
        skip_line(output);
    }
    let text = String::from_utf8_lossy(&line);
    (read > 0).then(|| text.trim_end().to_owned())
}

fn skip_line(output: &mut impl BufRead) {
    while let Ok(buffer) = output.fill_buf()
        && !buffer.is_empty()
    {
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        output.consume(used);
        if end.is_some() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_remembered_and_long_ones_cut() {
        let log = Log::default();
        let long = "x".repeat(3 * MAX_LINE);
        let said: String = (0..20).map(|line| format!("{line}\n")).collect();
        log.relay(format!("{said}{long}\nend").as_bytes(), "m");
        let last = log.last_words();
        let lines: Vec<&str> = last.lines().collect();
        assert_eq!(lines.len(), REMEMBERED);
        assert_eq!(lines[..2], ["10", "11"]);
        assert_eq!(lines[REMEMBERED - 2], "x".repeat(MAX_LINE));
        assert_eq!(lines[REMEMBERED - 1], "end");
    }
}

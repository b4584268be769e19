//! Lines from someone who may not know when to stop.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    time::Instant,
};

/// Lines of at most a limit; the rest of a longer one is dropped.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    limit: usize,
    cut: bool,
}

/// One line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    /// Whether it was longer than the limit.
    pub(crate) cut: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, limit: usize) -> Self {
        Self { reader: BufReader::new(reader), line: Vec::new(), limit, cut: false }
    }

    /// The next line, or `None` at the end. Nothing is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let read = self.reader.fill_buf().await?;
            if read.is_empty() {
                let unfinished = !self.line.is_empty();
                return Ok(unfinished.then(|| self.take()));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let piece = &read[..end.unwrap_or(read.len())];
            let room = self.limit - self.line.len();
            self.cut |= piece.len() > room;
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            let used = end.map_or(read.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> Line {
        let cut = std::mem::take(&mut self.cut);
        Line { bytes: std::mem::take(&mut self.line), cut }
    }
}

#[derive(Debug)]
pub(crate) struct Allowance {
    per_second: u32,
    since: Instant,
    used: u32,
}

impl Allowance {
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second, since: now, used: 0 }
    }

    /// Whether a line may pass now, and how many could not in the second that has just ended.
    pub(crate) fn pass(&mut self, now: Instant) -> (bool, u32) {
        let mut dropped = 0;
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            dropped = self.used.saturating_sub(self.per_second);
            self.since = now;
            self.used = 0;
        }
        self.used = self.used.saturating_add(1);
        (self.used <= self.per_second, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8], limit: usize) -> Vec<(String, bool)> {
        let mut lines = Lines::new(text, limit);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push((String::from_utf8(line.bytes).unwrap(), line.cut));
        }
        found
    }

    #[tokio::test]
    async fn lines_come_without_their_ends_and_the_last_needs_none() {
        let found = lines(b"one\n\ntwo", 10).await;
        assert_eq!(found, [("one".into(), false), (String::new(), false), ("two".into(), false)]);
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_cut_and_the_next_is_whole() {
        let found = lines(b"abcdef\nabcd\n", 4).await;
        assert_eq!(found, [("abcd".into(), true), ("abcd".into(), false)]);
    }

    #[test]
    fn lines_beyond_the_allowance_wait_for_the_next_second() {
        let start = Instant::now();
        let mut allowance = Allowance::new(2, start);
        let passed: Vec<bool> = (0..5).map(|_| allowance.pass(start).0).collect();
        assert_eq!(passed, [true, true, false, false, false]);
        assert_eq!(allowance.pass(start + Duration::from_secs(1)), (true, 3));
        assert_eq!(allowance.pass(start + Duration::from_secs(3)), (true, 0));
    }
}

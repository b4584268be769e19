//! Lines on their way to a reader that may be slow, or not there.

use std::{
    collections::VecDeque,
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use tracing::Level;

use crate::line::{self, Format, Head, Line};

/// The most bytes that wait to be written.
const MOST_BYTES: usize = 8 << 20;
/// The most that is written at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// How long lines gather before they are written, unless nothing was written just before.
const GATHER: Duration = Duration::from_millis(10);
const DROPPED: Head<'_> = Head {
    level: Level::WARN,
    target: "logging",
    message: "log lines dropped: stderr is read too slowly",
    timestamp: None,
};
/// How often dropped lines are told of.
const TELL_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// There is something to write, or a hurry.
    wake: Condvar,
    /// All is written.
    empty: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// Whole lines each, of at most a chunk unless a line alone is longer.
    chunks: VecDeque<Vec<u8>>,
    /// Bytes of all chunks, and of the one that is being written.
    bytes: usize,
    /// One that was written, to be filled again.
    spare: Option<Vec<u8>>,
    /// Lines dropped that nobody was told of.
    untold: u64,
    /// The writer waits until it is woken.
    asleep: bool,
    hurry: bool,
}

impl Queue {
    /// Takes one line, or drops it if too many wait. Never waits for the reader.
    pub(crate) fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.bytes + line.len() > MOST_BYTES {
            waiting.untold += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += line.len();
        match waiting.chunks.back_mut() {
            Some(last) if last.len() + line.len() <= CHUNK_BYTES => last.extend_from_slice(line),
            _ => {
                let mut chunk = waiting.spare.take().unwrap_or_default();
                chunk.extend_from_slice(line);
                waiting.chunks.push_back(chunk);
            }
        }
        if std::mem::take(&mut waiting.asleep) {
            self.wake.notify_one();
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns when all is written, or after `most`.
    pub(crate) fn flush(&self, most: Duration) {
        let mut waiting = self.waiting.lock();
        waiting.hurry = true;
        waiting.asleep = false;
        self.wake.notify_one();
        self.empty.wait_while_for(&mut waiting, |waiting| waiting.bytes > 0, most);
        waiting.hurry = false;
    }

    /// Writes what is pushed to `out`, for as long as the process lives.
    pub(crate) fn write(&self, mut out: impl Write, format: Format) {
        let mut told = None;
        let mut notice = Vec::new();
        loop {
            let (chunk, dropped) = self.next(told);
            let failed = out.write_all(&chunk).is_err();
            if dropped > 0 {
                told = now();
                notice.clear();
                line::begin(&mut notice, format, &DROPPED);
                let mut line = Line::new(&mut notice, format, DROPPED.target);
                line.number("dropped", dropped);
                line.end();
                let _ = out.write_all(&notice);
            }
            self.written(chunk, failed);
        }
    }

    /// Waits for something to write: a chunk, and how many dropped lines to tell of.
    fn next(&self, told: Option<Instant>) -> (Vec<u8>, u64) {
        let mut waiting = self.waiting.lock();
        let mut gathered = false;
        loop {
            let tell = waiting.untold > 0 && told.is_none_or(|told| told.elapsed() >= TELL_EVERY);
            let is_due = gathered || waiting.hurry || waiting.chunks.len() > 1;
            if (is_due && !waiting.chunks.is_empty()) || tell {
                let dropped = if tell { std::mem::take(&mut waiting.untold) } else { 0 };
                return (waiting.chunks.pop_front().unwrap_or_default(), dropped);
            }
            if gathered && waiting.untold == 0 {
                waiting.asleep = true;
                self.wake.wait_while(&mut waiting, |waiting| waiting.asleep);
            } else {
                self.wake.wait_for(&mut waiting, GATHER);
                gathered = true;
            }
        }
    }

    fn written(&self, mut chunk: Vec<u8>, failed: bool) {
        let lines =
            if failed { chunk.iter().filter(|byte| **byte == b'\n').count() as u64 } else { 0 };
        self.dropped.fetch_add(lines, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        waiting.bytes -= chunk.len();
        chunk.clear();
        if chunk.capacity() <= 2 * CHUNK_BYTES {
            waiting.spare = Some(chunk);
        }
        if waiting.bytes == 0 {
            self.empty.notify_all();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the writer is a thread of its own, outside any runtime"
)]
fn now() -> Option<Instant> {
    Some(Instant::now())
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, mpsc},
        thread,
    };

    use super::*;

    /// A reader that takes one write for each permission.
    struct Slow {
        may: mpsc::Receiver<()>,
        read: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.may.recv().map_err(io::Error::other)?;
            self.read.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start() -> (Arc<Queue>, mpsc::Sender<()>, mpsc::Receiver<Vec<u8>>) {
        let queue = Arc::<Queue>::default();
        let ((permit, may), (read, written)) = (mpsc::channel(), mpsc::channel());
        let writing = Arc::clone(&queue);
        thread::spawn(move || writing.write(Slow { may, read }, Format::Json));
        (queue, permit, written)
    }

    #[test]
    fn lines_are_written_in_order_and_many_at_a_time() {
        let (queue, permit, written) = start();
        let lines: Vec<String> = (0..10_000).map(|line| format!("line {line}\n")).collect();
        lines.iter().for_each(|line| queue.push(line.as_bytes()));
        let all = lines.concat();
        let mut read = Vec::new();
        let mut writes = 0;
        while read.len() < all.len() {
            permit.send(()).unwrap();
            let chunk = written.recv().unwrap();
            assert!(chunk.len() <= CHUNK_BYTES && chunk.ends_with(b"\n"), "{}", chunk.len());
            read.extend(chunk);
            writes += 1;
        }
        assert_eq!(String::from_utf8(read).unwrap(), all);
        assert!(writes < 10, "{writes} writes");
        assert_eq!(queue.dropped(), 0);
    }

    #[test]
    fn lines_nobody_reads_are_dropped_and_counted() {
        let (queue, permit, written) = start();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        let fit = (MOST_BYTES / line.len()) as u64;
        for _ in 0..fit + 7 {
            queue.push(&line);
        }
        assert_eq!(queue.dropped(), 7, "and nothing waited");
        queue.flush(Duration::ZERO);
        let mut told = String::new();
        let mut whole = 0;
        while whole < fit || told.is_empty() {
            permit.send(()).unwrap();
            let chunk = written.recv().unwrap();
            match chunk.starts_with(b"{") {
                true => told += &String::from_utf8(chunk).unwrap(),
                false => whole += (chunk.len() / line.len()) as u64,
            }
        }
        assert_eq!(told.lines().count(), 1, "{told}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["level"], &told["dropped"]), (&"WARN".into(), &7.into()), "{told}");
    }

    #[test]
    fn flush_waits_for_the_reader_but_not_long() {
        let (queue, permit, written) = start();
        queue.push(b"one\n");
        queue.flush(Duration::from_millis(1));
        assert!(written.try_recv().is_err(), "nobody has read it");
        permit.send(()).unwrap();
        queue.flush(Duration::from_secs(60));
        assert_eq!(written.try_recv().unwrap(), b"one\n");
    }
}

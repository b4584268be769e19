//! What a rank prints: kept in two files, so that the older half can be let go.
//!
//! A file's name says how many bytes came before it, over all starts of the rank.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use protocol::LogPiece;

use crate::{clock, engine::pause};

const PREFIX: &str = "log-";
/// The most bytes that are taken in a second: who prints more waits.
const PER_SECOND: u64 = 4 << 20;
/// What is kept of a line that may be the last, and what is told of it.
const LINE_BYTES: usize = 4 << 10;
const LINE_CHARS: usize = 200;

/// What all of a rank's streams are written to, in the order in which they are read.
#[derive(Debug)]
pub(super) struct Log(Mutex<(Writer, Paced)>);

impl Log {
    /// Of files in `folder`, of at most `most` bytes together.
    pub(super) fn new(folder: &Path, most: u64) -> Self {
        let paced = Paced { since: clock::now(), taken: 0 };
        Self(Mutex::new((Writer::new(folder, most / 2), paced)))
    }

    /// Writes down what comes from `reader`, and returns its last line.
    pub(super) fn keep(&self, mut reader: impl Read) -> Option<String> {
        let mut buffer = vec![0; 64 << 10];
        let mut last = LastLine::default();
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return last.text(),
                Ok(read) => {
                    last.take(&buffer[..read]);
                    let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                    // A disk that is full is no reason to stop the job.
                    let _ = log.0.write(&buffer[..read]);
                    // Under the lock: all streams of a rank together are slowed.
                    log.1.take(read as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return last.text(),
            }
        }
    }
}

/// The last line that is not blank, as far as it is worth telling.
#[derive(Debug, Default)]
struct LastLine {
    whole: Vec<u8>,
    begun: Vec<u8>,
}

impl LastLine {
    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES.saturating_sub(self.begun.len());
            self.begun.extend(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.begun);
                if !line.trim_ascii().is_empty() {
                    self.whole = line;
                }
            }
        }
    }

    fn text(self) -> Option<String> {
        let line = if self.begun.trim_ascii().is_empty() { self.whole } else { self.begun };
        let text = String::from_utf8_lossy(line.trim_ascii()).into_owned();
        let text: String = text.chars().filter(|c| !c.is_control()).take(LINE_CHARS).collect();
        (!text.is_empty()).then_some(text)
    }
}

#[derive(Debug)]
struct Paced {
    since: Instant,
    taken: u64,
}

impl Paced {
    fn take(&mut self, bytes: u64) {
        let now = clock::now();
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            *self = Self { since: now, taken: 0 };
        }
        self.taken += bytes;
        if self.taken > PER_SECOND {
            pause::until(self.since + Duration::from_secs(1));
        }
    }
}

#[derive(Debug)]
struct Writer {
    folder: PathBuf,
    half: u64,
    file: Option<(File, u64)>,
}

impl Writer {
    fn new(folder: &Path, half: u64) -> Self {
        Self { folder: folder.to_owned(), half, file: None }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (file, length) = match &mut self.file {
            Some((_, length)) if *length >= self.half => self.next()?,
            Some(file) => file,
            None => self.next()?,
        };
        file.write_all(bytes)?;
        *length += bytes.len() as u64;
        Ok(())
    }

    /// Goes on in the last file, or in a new one if that is full; only the two newest are kept.
    fn next(&mut self) -> io::Result<&mut (File, u64)> {
        let mut files = files(&self.folder);
        let last = files.last().copied();
        let (from, length) = match last {
            Some((from, length)) if length < self.half => (from, length),
            Some((from, length)) => (from + length, 0),
            None => (0, 0),
        };
        let path = path(&self.folder, from);
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        if last.is_none_or(|(last, _)| last != from) {
            files.push((from, 0));
        }
        for (old, _) in files.iter().rev().skip(2) {
            fs::remove_file(self::path(&self.folder, *old))?;
        }
        Ok(self.file.insert((file, length)))
    }
}

/// What is kept from byte `from` on, or near the end; at most `most` bytes.
pub(crate) fn read(folder: &Path, from: Option<u64>, most: u32) -> LogPiece {
    let files = files(folder);
    let end = files.last().map_or(0, |(from, length)| from + length);
    let begin = files.first().map_or(0, |(from, _)| *from);
    let from = from.unwrap_or_else(|| end.saturating_sub(u64::from(most))).clamp(begin, end);
    let mut bytes = Vec::new();
    for (start, length) in &files {
        let at = from + bytes.len() as u64;
        if at < *start || at >= start + length {
            continue;
        }
        let room = u64::from(most).saturating_sub(bytes.len() as u64);
        let Ok(mut file) = File::open(path(folder, *start)) else { break };
        if file.seek(SeekFrom::Start(at - start)).is_err() {
            break;
        }
        if file.take(room).read_to_end(&mut bytes).is_err() {
            break;
        }
    }
    // Not through the middle of a character, unless there is nothing else.
    let whole = match std::str::from_utf8(&bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    };
    bytes.truncate(whole);
    let next = from + bytes.len() as u64;
    LogPiece { from, text: String::from_utf8_lossy(&bytes).into_owned(), next }
}

fn path(folder: &Path, from: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{from}"))
}

/// The files by where they begin, and their lengths.
fn files(folder: &Path) -> Vec<(u64, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(u64, u64)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let from = name.strip_prefix(PREFIX)?.parse().ok()?;
            Some((from, entry.metadata().ok()?.len()))
        })
        .collect();
    files.sort_unstable();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rank-log-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn keep(reader: &[u8], folder: &Path, most: u64) -> Option<String> {
        Log::new(folder, most).keep(reader)
    }

    #[test]
    fn the_last_line_is_the_last_that_is_not_blank() {
        let folder = Folder::new("last");
        let last = |text: &[u8]| keep(text, &folder.0, 1 << 20);
        assert_eq!(last(b"Traceback:\n  x\nValueError: no\n\n").unwrap(), "ValueError: no");
        assert_eq!(last(b"one\ntwo \x1b[0m").unwrap(), "two [0m");
        assert_eq!(last(b"\n \n"), None);
        assert_eq!(last(&[b'x'; 9_000]).unwrap().len(), LINE_CHARS);
    }

    #[test]
    fn what_was_printed_is_read_in_pieces_over_all_starts() {
        let folder = Folder::new("pieces");
        keep(b"one\n", &folder.0, 1 << 20);
        keep(b"two\n", &folder.0, 1 << 20);
        let first = read(&folder.0, Some(0), 5);
        assert_eq!((first.text.as_str(), first.next), ("one\nt", 5));
        let rest = read(&folder.0, Some(first.next), 99);
        assert_eq!((rest.text.as_str(), rest.next), ("wo\n", 8));
        assert_eq!(read(&folder.0, None, 4).text, "two\n");
        assert_eq!(
            read(&folder.0, Some(99), 4),
            LogPiece { from: 8, next: 8, ..LogPiece::default() }
        );
    }

    #[test]
    fn the_oldest_is_let_go_when_there_is_too_much() {
        let folder = Folder::new("bounded");
        for round in 0..50_u32 {
            keep(format!("{round:099}\n").as_bytes(), &folder.0, 1_000);
        }
        let kept: u64 = files(&folder.0).iter().map(|(_, length)| length).sum();
        assert!((100..=1_200).contains(&kept), "{kept}");
        let last = read(&folder.0, None, 100);
        assert_eq!((last.next, last.text.trim_start_matches('0')), (5_000, "49\n"));
        assert!(read(&folder.0, Some(0), 100).from > 0, "the beginning is gone");
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        let folder = Folder::new("characters");
        keep("aé".as_bytes(), &folder.0, 1 << 20);
        assert_eq!(read(&folder.0, Some(0), 2), LogPiece { from: 0, text: "a".into(), next: 1 });
        assert_eq!(read(&folder.0, Some(1), 9).text, "é");
    }
}

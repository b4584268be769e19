//! How far a rank says it is.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Instant,
};

use protocol::RankProgress;
use serde::Deserialize;

use crate::clock;

/// What is read of the end of the file.
const TAIL: u64 = 4 << 10;

/// A line of a progress file; what else it holds is the job's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Line {
    step: u64,
    steps: Option<u64>,
    checkpoint: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Progress {
    path: PathBuf,
    last: Option<Line>,
    checkpointed: Option<Instant>,
}

impl Progress {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, last: None, checkpointed: None }
    }

    pub(super) fn read(&mut self) {
        let Some(line) = tail(&self.path).as_deref().and_then(last_line) else { return };
        let before = self.last.and_then(|last| last.checkpoint);
        if line.checkpoint.is_some() && line.checkpoint != before {
            self.checkpointed = Some(clock::now());
        }
        self.last = Some(line);
    }

    /// The step of the last checkpoint.
    pub(super) fn checkpoint(&self) -> Option<u64> {
        self.last.and_then(|last| last.checkpoint)
    }

    pub(super) fn report(&self) -> Option<RankProgress> {
        let Line { step, steps, checkpoint } = self.last?;
        let age = self.checkpointed.map(|at| clock::now().duration_since(at));
        // Whole seconds, so that a report does not differ by the mere passing of time.
        let checkpoint_age_ms = age.map(|age| age.as_secs() * 1000);
        Some(RankProgress { step, steps, checkpoint, checkpoint_age_ms })
    }
}

fn tail(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last line that is whole and says how far the job is.
fn last_line(text: &str) -> Option<Line> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().rev().find_map(|line| serde_json::from_str(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_that_makes_sense_counts() {
        let text =
            "{\"step\":1}\n{\"step\":2,\"steps\":9,\"checkpoint\":1,\"loss\":0.5}\nhm\n{\"st";
        let line = Line { step: 2, steps: Some(9), checkpoint: Some(1) };
        assert_eq!(last_line(text), Some(line));
        assert_eq!(last_line("{\"step\":1}"), None, "it may not be whole");
        assert_eq!(last_line(""), None);
    }
}

//! What changes when a file is touched.

use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime},
};

/// File systems keep times in ticks of theirs. A file that was touched so recently could be touched
/// again, and look the same.
const FRESH: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|found| Self::from(&found))
    }

    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        file.metadata().map(|found| Self::from(&found))
    }

    /// Whether the file was touched a moment ago, or by a wrong clock is yet to be.
    #[expect(clippy::disallowed_methods, reason = "the times of files are wall time")]
    pub(crate) fn is_fresh(&self) -> bool {
        let (seconds, nanos) = self.modified.max(self.changed);
        let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u64::try_from(nanos)) else {
            return false;
        };
        let since = Duration::from_secs(seconds) + Duration::from_nanos(nanos);
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + since);
        !age.is_ok_and(|age| age >= FRESH)
    }
}

impl From<&Metadata> for Stamp {
    fn from(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

//! What must outlive the process: named JSON records in one file.
//!
//! The file is a log. Its first line says what it is; each further line is one commit with its
//! checksum, written and synced before the commit is acknowledged. All records fit in memory, so
//! reading is a walk through the file, and a log that has grown is replaced by a short one.
//!
//! An embedded database was tried against the same demands: of 5,138 files of redb 2 with one byte
//! damaged, opening made it panic on 26 and wrote to 285, while here damage must be refused in words
//! with nothing overwritten. With a few megabytes of state at most its trees would buy nothing.
//!
//! - Killed or cut off at any byte: the last commit is whole or absent, and those before it are
//!   there. What was left of an unfinished one is kept beside the file.
//! - Disk full: the commit fails, what was written of it is taken back, and later commits work once
//!   there is room.
//! - A failed sync: nothing more is accepted until the file is opened anew, since what reached the
//!   disk is not known.
//! - Damage before the last line: refused, with the line, and nothing is touched.
//! - An older version: copied aside, then brought forward. A newer one: refused.

mod commit;
mod file;
mod line;
mod medium;
mod open;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde_json::Value;

pub use self::{
    commit::Change,
    open::{Found, Opened, read},
};

use self::{
    file::Files,
    medium::{Medium, Through},
};

pub type Records = BTreeMap<String, Value>;

pub type Migration = fn(&mut Records) -> Result<(), String>;

#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The migration from each version, the first from version 1. The current version is one more
    /// than there are.
    pub migrations: &'static [Migration],
}

impl Schema {
    pub fn version(&self) -> u32 {
        u32::try_from(self.migrations.len()).unwrap_or(u32::MAX).saturating_add(1)
    }
}

#[derive(Debug)]
pub struct Store {
    files: Files,
    medium: Box<dyn Medium>,
    through: Through,
    version: u32,
    records: Records,
    /// Bytes up to the end of the last commit.
    length: u64,
    /// Bytes of the file when it was last short.
    short: u64,
    /// Why nothing more is accepted.
    broken: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system would not let us.
    #[error("cannot {what} {}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is in use by another process", .path.display())]
    InUse { path: PathBuf },
    /// A line before the last is damaged, or the first.
    #[error(
        "{}:{line}: the state file is damaged here and was left as it is; restore it from a copy \
         ({} may be the one before the last rewrite), or move it away to begin anew",
        .path.display(), .previous.display()
    )]
    Damaged {
        path: PathBuf,
        line: usize,
        /// The file before the last rewrite, if there is one.
        previous: PathBuf,
    },
    #[error(
        "{} has version {found}; this program reads up to {known}. The file was not changed",
        .path.display()
    )]
    TooNew { path: PathBuf, found: u32, known: u32 },
    /// Its records could not be brought to the current version.
    #[error("{} could not be migrated from version {from}: {why}. The file was not changed", .path.display())]
    Migration {
        path: PathBuf,
        /// The version that was not left.
        from: u32,
        why: String,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// It could not be written, and nothing of it remains.
    #[error("cannot write to {}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is closed for writing after a failed write; reopen it", .path.display())]
    Broken { path: PathBuf },
}

impl Store {
    /// Opens the file at `path`, or makes it. Only one process can have it open.
    pub fn open(path: &Path, schema: &Schema) -> Result<Opened, OpenError> {
        open::open(path, schema, medium::plain)
    }

    /// Whether the file at `path`, if there is one, can be read and brought to the current version.
    /// Changes nothing, and needs no lock: another process may have the file open.
    pub fn check(path: &Path, schema: &Schema) -> Result<(), OpenError> {
        open::check(path, schema)
    }

    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Makes `change` durable whole, or not at all.
    pub fn commit(&mut self, change: Change) -> Result<(), CommitError> {
        commit::commit(self, change)
    }
}

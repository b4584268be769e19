//! The one file that is written to, as few operations as will do.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
};

/// A file that grows at its end.
pub(crate) trait Medium: fmt::Debug + Send {
    /// Adds `bytes` at the end, perhaps only some of them if it fails.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns once all that was added is on the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts it to `length` bytes.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

impl Medium for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// What a file open for appending is written through.
pub(crate) type Through = fn(File) -> Box<dyn Medium>;

pub(crate) fn plain(file: File) -> Box<dyn Medium> {
    Box::new(file)
}

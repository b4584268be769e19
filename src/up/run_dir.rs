//! A private directory for the sockets of a run.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
};

use crate::program::runtime_dir;

/// The directory. Dropping it removes it, unless it outlives the run or another process has it.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    outlives: bool,
    /// Another process has it, and removes it.
    shared: bool,
}

impl RunDir {
    /// Makes a new one that only this user may enter.
    pub(crate) fn make() -> io::Result<Self> {
        let base = runtime_dir();
        let mut attempt = 0;
        loop {
            let path = base.join(format!("sluice-{}-{attempt}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, outlives: false, shared: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => {
                    attempt += 1;
                }
                Err(error) => {
                    let error_text = format!("{}: {error}", path.display());
                    return Err(io::Error::new(error.kind(), error_text));
                }
            }
        }
    }

    /// The one in `state_dir`, in which the next run finds what this one leaves behind.
    pub(crate) fn keep(state_dir: &Path) -> io::Result<Self> {
        let path = std::path::absolute(state_dir)?.join("run");
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Self { path, outlives: true, shared: false })
    }

    /// The one of the process that this one replaces, which removes it if this one fails.
    pub(crate) fn inherit(path: PathBuf) -> Self {
        Self { path, outlives: false, shared: true }
    }

    /// Removes it with this run.
    pub(crate) fn take_over(&mut self) {
        self.shared = false;
    }

    /// Leaves it to the process that replaces this one.
    pub(crate) fn leave(&mut self) {
        self.shared = true;
    }

    /// Whether the next run finds what this one leaves behind.
    pub(crate) fn outlives(&self) -> bool {
        self.outlives
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.outlives || self.shared {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(%error, "failed to remove the run directory");
        }
    }
}

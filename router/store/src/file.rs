//! The file, those beside it, and how one takes another's place.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::{OpenError, Records, line};

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) path: PathBuf,
    /// Held as long as the store is open.
    _lock: File,
}

impl Files {
    pub(crate) fn lock(path: &Path) -> Result<Self, OpenError> {
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder).map_err(|error| failed("make", folder, error))?;
        let lock_path = beside(path, "lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(|error| failed("open", &lock_path, error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::InUse { path: path.to_owned() }),
            Err(error) => Err(failed("lock", &lock_path, error.into())),
        }
    }

    /// A file beside this one, such as `state.log.previous`.
    pub(crate) fn beside(&self, ending: &str) -> PathBuf {
        beside(&self.path, ending)
    }

    /// A name beside this one that is not taken.
    pub(crate) fn unused(&self, ending: &str) -> PathBuf {
        let numbered = (1..).map(|number| self.beside(&format!("{ending}.{number}")));
        let mut names = std::iter::once(self.beside(ending)).chain(numbered);
        names.find(|name| !name.exists()).unwrap_or_else(|| self.beside(ending))
    }

    pub(crate) fn append(&self) -> io::Result<File> {
        OpenOptions::new().append(true).open(&self.path)
    }

    /// Puts a file that holds just `records` in place of this one; the old one is kept as
    /// `.previous`. Its length is returned.
    pub(crate) fn rewrite(&self, records: &Records, version: u32) -> io::Result<u64> {
        let new = self.beside("new");
        let mut text = line::header(version);
        if !records.is_empty() {
            text.extend(line::commit(&crate::Change::all(records)));
        }
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        if self.path.exists() {
            let previous = self.beside("previous");
            match fs::remove_file(&previous) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            fs::hard_link(&self.path, &previous)?;
        }
        fs::rename(&new, &self.path)?;
        self.sync_folder()?;
        Ok(text.len() as u64)
    }

    /// Returns once the names in the folder are on the disk.
    pub(crate) fn sync_folder(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }
}

pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

pub(crate) fn failed(what: &'static str, path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { what, path: path.to_owned(), source }
}

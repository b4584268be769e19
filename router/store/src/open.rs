//! From a file to its records, whatever happened to the process that wrote it.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    OpenError, Records, Schema, Store,
    file::{self, Files, failed},
    line,
    medium::Through,
};

/// A store, and what was found on opening it.
#[derive(Debug)]
pub struct Opened {
    pub store: Store,
    /// Where the rest of a commit is kept that was cut off, if one was.
    pub torn: Option<PathBuf>,
    /// Where the file is kept as it was before a migration, if there was one.
    pub migrated_from: Option<PathBuf>,
}

/// Opens the file at `path` and writes to it through `through`.
pub(crate) fn open(path: &Path, schema: &Schema, through: Through) -> Result<Opened, OpenError> {
    let files = Files::lock(path)?;
    if !path.exists() {
        files
            .rewrite(&Records::new(), schema.version())
            .map_err(|error| failed("make", path, error))?;
    }
    let bytes = fs::read(path).map_err(|error| failed("read", path, error))?;
    let found = understand(path, &bytes, schema)?;
    let known = schema.version();
    let torn = keep_torn(&files, &bytes, found.length)?;
    let mut records = found.records;
    let migrated_from = migrate(&files, &mut records, found.version, schema)?;
    let file = files.append().map_err(|error| failed("open", path, error))?;
    let length = file.metadata().map_err(|error| failed("read", path, error))?.len();
    let store = Store {
        files,
        medium: through(file),
        through,
        version: known,
        records,
        length,
        short: length,
        broken: false,
    };
    Ok(Opened { store, torn, migrated_from })
}

/// Does all that [`open`] does with the records, and nothing with the file.
pub(crate) fn check(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("read", path, error)),
    };
    let found = understand(path, &bytes, schema)?;
    let mut records = found.records;
    bring_forward(path, &mut records, found.version, schema)
}

/// What the bytes of the file at `path` say, if this program can use it.
fn understand(path: &Path, bytes: &[u8], schema: &Schema) -> Result<Found, OpenError> {
    let damaged = |line| OpenError::Damaged {
        path: path.to_owned(),
        line,
        previous: file::beside(path, "previous"),
    };
    let found = read(bytes).map_err(damaged)?;
    let known = schema.version();
    if found.version > known {
        return Err(OpenError::TooNew { path: path.to_owned(), found: found.version, known });
    }
    Ok(found)
}

/// Runs the migrations from version `from` to the current one.
fn bring_forward(
    path: &Path,
    records: &mut Records,
    from: u32,
    schema: &Schema,
) -> Result<(), OpenError> {
    for (version, migration) in (1..).zip(schema.migrations).skip(from.saturating_sub(1) as usize) {
        let failed = |why| OpenError::Migration { path: path.to_owned(), from: version, why };
        migration(records).map_err(failed)?;
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub version: u32,
    pub records: Records,
    /// Bytes up to the end of the last whole commit.
    pub length: usize,
}

/// What the bytes of a file say, or the number of a damaged line.
///
/// Only what is written last can be cut off, so a bad line is forgiven if no good one follows.
pub fn read(bytes: &[u8]) -> Result<Found, usize> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    let (_, first) = lines.next().ok_or(1_usize)?;
    let version = first.strip_suffix(b"\n").and_then(line::version).ok_or(1_usize)?;
    let mut found = Found { version, records: Records::new(), length: first.len() };
    let mut bad = None;
    for (index, text) in lines {
        match (text.strip_suffix(b"\n").and_then(line::change), bad) {
            (Some(change), None) => {
                found.length += text.len();
                change.apply(&mut found.records);
            }
            (Some(_), Some(line)) => return Err(line),
            (None, _) => bad = bad.or(Some(index + 1)),
        }
    }
    Ok(found)
}

/// Takes away what follows the last whole commit, and keeps it beside the file.
fn keep_torn(files: &Files, bytes: &[u8], length: usize) -> Result<Option<PathBuf>, OpenError> {
    let rest = &bytes[length..];
    if rest.is_empty() {
        return Ok(None);
    }
    let kept = files.unused("torn");
    let keep = || {
        let mut file = fs::File::create(&kept)?;
        file.write_all(rest)?;
        file.sync_all()?;
        let file = fs::OpenOptions::new().write(true).open(&files.path)?;
        file.set_len(length as u64)?;
        file.sync_all()?;
        files.sync_folder()
    };
    keep().map_err(|error| failed("repair", &files.path, error))?;
    Ok(Some(kept))
}

/// Brings records of version `from` to the current one; the file is copied aside before.
fn migrate(
    files: &Files,
    records: &mut Records,
    from: u32,
    schema: &Schema,
) -> Result<Option<PathBuf>, OpenError> {
    if from == schema.version() {
        return Ok(None);
    }
    let path = &files.path;
    bring_forward(path, records, from, schema)?;
    let kept = files.unused(&format!("v{from}"));
    fs::copy(path, &kept).map_err(|error| failed("copy", path, error))?;
    let rewrite = files.rewrite(records, schema.version());
    rewrite.map_err(|error| failed("rewrite", path, error))?;
    Ok(Some(kept))
}

//! What a model's files contain, as one digest: another digest is another edition of the model.
//!
//! The digest of a model in one file is the SHA-256 of that file, as `sha256sum` prints it. An ONNX model
//! may keep its weights in files beside it; then it is the SHA-256 of the lines that `sha256sum` prints
//! for all of them.

mod external;
mod stamp;

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use self::stamp::Stamp;

/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// What was read, by path, so that files that nobody touched are not read again.
static KNOWN: LazyLock<Mutex<BTreeMap<PathBuf, Content>>> = LazyLock::new(Mutex::default);

/// The content of a model's files when they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    digest: String,
    /// Every file of it, the model first, and how it was then.
    files: Vec<(PathBuf, Stamp)>,
    /// Whether a file was so new that a change at once might leave no trace.
    fresh: bool,
}

impl Content {
    /// In hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether the files still have this content: untouched, or read again and the same.
    pub fn still_holds(&self) -> bool {
        if !self.is_untouched() {
            return false;
        }
        let path = self.files.first().map(|(path, _)| path);
        !self.fresh
            || path.is_some_and(|path| read(path).is_ok_and(|now| now.digest == self.digest))
    }

    fn is_untouched(&self) -> bool {
        self.files.iter().all(|(path, stamp)| Stamp::of(path).is_ok_and(|now| now == *stamp))
    }
}

/// Reads the model in `path`, and what it keeps beside it.
pub fn read(path: &Path) -> io::Result<Content> {
    let mut fresh = false;
    let mut files = Vec::new();
    let mut hash = |path: PathBuf| {
        let (stamp, digest) = whole(&path)?;
        fresh |= stamp.is_fresh();
        files.push((path, stamp));
        Ok::<String, io::Error>(digest)
    };
    let mut digest = hash(path.to_owned())?;
    let beside = external::locations(&mut File::open(path)?);
    if !beside.is_empty() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut lines = format!("{digest}  {name}\n");
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        for name in beside {
            match hash(folder.join(&name)) {
                Ok(digest) => lines += &format!("{digest}  {name}\n"),
                // The engine says so better.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    lines += &format!("missing  {name}\n");
                }
                Err(error) => return Err(error),
            }
        }
        digest = hex(Sha256::digest(&lines).as_slice());
    }
    Ok(Content { digest, files, fresh })
}

/// The digest of the model in `path`; reads only what was touched since it was read last.
pub fn digest(path: &Path) -> io::Result<String> {
    let known = KNOWN.lock().get(path).cloned();
    if let Some(known) = known.filter(|known| !known.fresh && known.is_untouched()) {
        return Ok(known.digest);
    }
    let content = read(path)?;
    let digest = content.digest.clone();
    KNOWN.lock().insert(path.to_owned(), content);
    Ok(digest)
}

/// How a file is, and the digest of all of it.
fn whole(path: &Path) -> io::Result<(Stamp, String)> {
    let mut file = File::open(path)?;
    let stamp = Stamp::of_file(&file)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((stamp, hex(hash.finalize().as_slice()))),
            count => hash.update(&piece[..count]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;

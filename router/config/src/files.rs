//! Reads small files, saying plainly why one cannot be read.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The file's content as text.
pub(crate) fn read(path: &Path, max_bytes: u64) -> Result<String, Unreadable> {
    let mut bytes = Vec::new();
    let unopened = |error: io::Error| Unreadable::Unopened(explain(&error));
    let file = File::open(path).map_err(unopened)?;
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(unopened)?;
    if bytes.len() as u64 > max_bytes {
        return Err(Unreadable::Unopened(format!("longer than {max_bytes} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        Unreadable::NotText(String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned())
    })
}

#[derive(Debug)]
pub(crate) enum Unreadable {
    /// Its content is out of reach.
    Unopened(String),
    /// It stops being UTF-8 after this.
    NotText(String),
}

/// An error in the words an operator would use.
pub(crate) fn explain(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        "no such file".to_owned()
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "not permitted to read it".to_owned()
    } else if error.kind() == io::ErrorKind::IsADirectory {
        "a directory, not a file".to_owned()
    } else {
        error.to_string()
    }
}

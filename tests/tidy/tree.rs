//! The files under test: what git tracks, and what it would if it were added now.

use std::{fs, path::Path, process::Command};

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub(crate) struct File {
    /// Relative to the root, with `/` between folders.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

impl File {
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok().filter(|text| !text.contains('\0'))
    }

    /// Its lines with their numbers, from 1; none if it is not text.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text().unwrap_or_default().lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

pub(crate) fn files() -> Vec<File> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(ROOT)
        .output()
        .expect("git is needed to list the files");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).expect("paths here are UTF-8");
    let mut paths: Vec<&str> = listed.split_terminator('\0').collect();
    paths.sort_unstable();
    paths.dedup();
    let read = |path: &str| {
        let bytes = fs::read(Path::new(ROOT).join(path)).ok()?;
        Some(File { path: path.to_owned(), bytes })
    };
    paths.into_iter().filter_map(read).collect()
}

pub(crate) fn files_of(extension: &str) -> Vec<File> {
    let ending = format!(".{extension}");
    files().into_iter().filter(|file| file.path.ends_with(&ending)).collect()
}

pub(crate) fn report(problems: &[String]) {
    assert!(problems.is_empty(), "{} found:\n{}", problems.len(), problems.join("\n"));
}

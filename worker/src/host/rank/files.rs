//! The files by which a worker finds the ranks that one before it left at work.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use protocol::RankSpec;

use crate::rank::Assignment;

/// The kind of socket that ranks are found by, and of the file beside it.
pub(super) const CONTROL: &str = "rank";
pub(super) const FILE: &str = "rank.json";
/// What its own process says, which outlives this one.
pub(super) const LOG: &str = "rank.log";

/// A rank that a worker before this one left at work, and where.
#[derive(Clone, Debug)]
pub(in crate::host) struct Found {
    pub(in crate::host) gpu: u32,
    pub(in crate::host) position: String,
    pub(super) assignment: Assignment,
}

pub(super) fn file(run_dir: &Path, spec: &RankSpec, kind: &str) -> PathBuf {
    run_dir.join(format!("{}.{kind}", spec.name()))
}

pub(in crate::host) fn find(run_dir: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(run_dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.ends_with(FILE) {
            continue;
        }
        let read = fs::read(&path).ok();
        let assignment: Option<Assignment> =
            read.and_then(|text| serde_json::from_slice(&text).ok());
        match assignment {
            Some(assignment) => found.push(Found {
                gpu: assignment.gpu,
                position: assignment.position.clone(),
                assignment,
            }),
            // Cut off while it was written: it was never begun.
            None => fs::remove_file(&path)?,
        }
    }
    Ok(found)
}

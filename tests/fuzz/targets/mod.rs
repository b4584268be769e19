//! What is fuzzed: every reader of bytes that somebody else wrote.
//!
//! A target is a function that takes any bytes at all and panics if it finds our mistake. The test
//! beside this folder gives each some thousands of inputs; `scripts/fuzz` builds the same functions
//! into a fuzzer that is guided by what they reach, and gives them millions.

mod answer;
mod configuration;
mod etcd;
mod plan;
mod profile;
mod request;
mod scenario;
mod state;
mod trace;
mod worker;

use std::{fs, path::PathBuf};

pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Reads the input; a panic is a finding.
    pub(crate) run: fn(&[u8]),
    /// Inputs that are right, or nearly.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
}

pub(crate) const TARGETS: [Target; 10] = [
    Target { name: "request", run: request::run, seeds: request::seeds },
    Target { name: "configuration", run: configuration::run, seeds: configuration::seeds },
    Target { name: "plan", run: plan::run, seeds: plan::seeds },
    Target { name: "scenario", run: scenario::run, seeds: scenario::seeds },
    Target { name: "worker", run: worker::run, seeds: worker::seeds },
    Target { name: "answer", run: answer::run, seeds: answer::seeds },
    Target { name: "profile", run: profile::run, seeds: profile::seeds },
    Target { name: "trace", run: trace::run, seeds: trace::seeds },
    Target { name: "state", run: state::run, seeds: state::seeds },
    Target { name: "etcd", run: etcd::run, seeds: etcd::seeds },
];

/// The bytes of each file in a folder of the repository whose name ends in `ending`, by name.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(root()).join(folder);
    let entries = fs::read_dir(&folder).expect("the folder is part of the repository");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it was just listed").path()).collect();
    paths.retain(|path| path.is_file() && path.to_string_lossy().ends_with(ending));
    paths.sort();
    assert!(!paths.is_empty(), "no {ending} in {}", folder.display());
    paths.iter().map(|path| fs::read(path).expect("it was just listed")).collect()
}

/// From the package that these files were built into to the repository.
fn root() -> &'static str {
    if env!("CARGO_MANIFEST_DIR").ends_with("driver") { "../../.." } else { "." }
}

fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

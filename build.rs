//! Tells the program which revision it was built from.

use std::{path::Path, process::Command};

fn main() {
    let asked = Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).output();
    let revision = asked
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned());
    println!("cargo::rustc-env=SLUICE_REVISION={revision}");
    for file in [".git/HEAD", ".git/refs/heads", "build.rs"] {
        if Path::new(file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
}

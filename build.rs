//! Tells the program which revision it was built from: `SLUICE_REVISION` where there is no git.

use std::{env, path::Path, process::Command};

fn main() {
    let told = env::var("SLUICE_REVISION").ok().filter(|revision| !revision.is_empty());
    let revision = told.or_else(of_git).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rerun-if-env-changed=SLUICE_REVISION");
    println!("cargo::rustc-env=SLUICE_REVISION={revision}");
    for file in [".git/HEAD", ".git/refs/heads", "build.rs"] {
        if Path::new(file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
}

fn of_git() -> Option<String> {
    let asked = Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).output().ok()?;
    let text = String::from_utf8(asked.stdout).ok().filter(|_| asked.status.success())?;
    Some(text.trim().to_owned())
}

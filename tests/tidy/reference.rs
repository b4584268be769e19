//! Reference pages are rendered from the declarations the program itself uses.
//!
//! `SLUICE_WRITE_DOCS=1 cargo test -p sluice --test tidy` writes them again.

use std::{fs, path::Path, process::Command};

use crate::tree::ROOT;

/// Fails where the page at `path` differs from `rendered`, or writes it if that is asked for.
pub(crate) fn page(path: &str, rendered: &str) {
    let file = Path::new(ROOT).join(path);
    if std::env::var_os("SLUICE_WRITE_DOCS").is_some() {
        fs::write(&file, rendered).expect("the page can be written");
        return;
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let differs = written.lines().zip(rendered.lines()).position(|(is, should)| is != should);
    let line = differs.unwrap_or_else(|| written.lines().count().min(rendered.lines().count())) + 1;
    assert!(
        written == rendered,
        "{path}:{line}: differs from the declarations; write it again with SLUICE_WRITE_DOCS=1"
    );
}

#[test]
fn command_line_page_matches_the_declarations() {
    let printed = Command::new(env!("CARGO_BIN_EXE_sluice")).arg("help-page").output();
    let printed = printed.expect("the program starts");
    assert!(printed.status.success());
    page("docs/reference/cli.md", &String::from_utf8_lossy(&printed.stdout));
}

#[test]
fn configuration_page_matches_the_declarations() {
    page("docs/reference/configuration.md", &config::page());
}

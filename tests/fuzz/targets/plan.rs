//! The file of `sluice plan`.

use std::path::Path;

pub(super) fn run(input: &[u8]) {
    let Some(text) = super::text(input) else { return };
    if text.contains("/dev") || text.contains("/proc") {
        return;
    }
    let read = config::planfile::parse(Path::new("plan.toml"), text, Path::new("/nonexistent"));
    if let Err(problems) = read {
        assert!(problems.iter().next().is_some());
        assert!(!problems.to_string().is_empty());
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    super::files("configs/plans", ".toml")
}

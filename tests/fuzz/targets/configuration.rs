//! A router's or a worker's file: a configuration, or every problem with its place.

use std::path::Path;

use config::{Environment, Source};

pub(super) fn run(input: &[u8]) {
    let Some(text) = super::text(input) else { return };
    // A device would be read as a profile, and reading one need not end.
    if text.contains("/dev") || text.contains("/proc") {
        return;
    }
    let path = Path::new("sluice.toml");
    let base_dir = Path::new("/nonexistent");
    let source = Source { path, text, base_dir, environment: Environment::default() };
    match config::parse_source(&source) {
        Ok((config, _warnings)) => {
            let again = config::parse_source(&source).expect("the same text is still right").0;
            assert!(config::diff(&config, &again).is_empty());
            assert!(!format!("{:?}", config.summary()).is_empty());
        }
        Err(problems) => {
            let lines = text.matches('\n').count() + 1;
            for problem in problems.iter() {
                let line = problem.to_string().split(':').nth(1).and_then(|at| at.parse().ok());
                assert!(line.is_none_or(|line: usize| (1..=lines).contains(&line)), "{problem}");
            }
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = super::files("configs", ".toml");
    seeds.extend(super::files("router/config/src/testdata", ".toml"));
    seeds.extend(super::files("tests/clients", ".toml"));
    seeds
}

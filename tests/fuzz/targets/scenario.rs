//! The file of `sluice load`.

use loadtest::scenario::Scenario;

pub(super) fn run(input: &[u8]) {
    let Some(text) = super::text(input) else { return };
    match Scenario::parse("fuzz", text) {
        Ok(scenario) => {
            for stream in &scenario.streams {
                stream.pattern().expect("a scenario that was read has patterns");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    super::files("loadtest/scenarios", ".toml")
}

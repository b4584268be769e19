//! Measured profiles.

use mig::measured;

pub(super) fn run(input: &[u8]) {
    let Some(text) = super::text(input) else { return };
    match measured::parse(text) {
        Ok(rows) => {
            assert!(!rows.is_empty());
            for row in rows {
                assert!(row.batch >= 1 && row.processes >= 1);
                let numbers = [row.throughput_rps, row.latency_ms, row.batch_ms()];
                assert!(
                    numbers.iter().all(|number| number.is_finite() && *number > 0.0),
                    "{row:?}"
                );
                measured::compute_slices(&row.profile);
            }
        }
        Err(wrong) => {
            assert!(!wrong.is_empty());
            let lines = text.lines().count().max(1);
            for line in wrong.iter().filter_map(|wrong| wrong.place.map(|(line, _)| line)) {
                assert!((1..=lines).contains(&line), "line {line} of {lines}");
            }
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    super::files("configs/profiles", ".csv")
}

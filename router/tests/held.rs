//! Recording does not fill the memory of a router that nobody scrapes.

use std::{fs, time::Duration};

use policy::dispatch::ClosedBy;
use serve::count::{ModelMetrics, Outcome};

/// As many as a busy router serves between two drains.
const BETWEEN: u32 = 40_000;
const DRAINS: u32 = 50;
/// What the exporter holds of a sample until it is drained.
const SAMPLE_BYTES: u64 = 16;
/// Histograms that a request in a batch of its own is recorded in.
const HISTOGRAMS: u64 = 4;

fn record(metrics: &ModelMetrics) {
    let took = metrics.batch_time("7g.80gb");
    for number in 0..BETWEEN {
        let time = Duration::from_micros(u64::from(number));
        metrics.dispatched(time);
        metrics.sent(1, ClosedBy::Full);
        took.record(time.as_secs_f64());
        metrics.ended(Outcome::Served { took: time, in_time: true });
    }
}

/// The bytes of this process that are in memory.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a process has a resident size") * 1024
}

#[test]
fn drained_samples_are_not_held_without_a_scrape() {
    let metrics = ModelMetrics::new("busy");
    let round = |_| {
        record(&metrics);
        metrics.drain();
    };
    // What one round needs is taken, and freed, before the first measurement.
    (0..3).for_each(round);
    let before = resident();
    (0..DRAINS).for_each(round);
    let grown = resident().saturating_sub(before);
    let recorded = u64::from(BETWEEN) * u64::from(DRAINS) * HISTOGRAMS * SAMPLE_BYTES;
    assert!(grown < recorded / 10, "{grown} bytes more after {recorded} bytes of samples");
    assert_eq!(metrics.totals().served, u64::from(BETWEEN * (DRAINS + 3)));
    let count = format!("sluice_request_duration_seconds_count{{model=\"busy\"}} {}\n", 2_120_000);
    assert!(metrics.render().contains(&count), "{}", metrics.render());
}

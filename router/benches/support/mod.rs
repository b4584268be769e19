//! What the benches share: CPU clocks, medians, and a peer that answers batches at once.

#![allow(dead_code, reason = "each bench uses a part of it")]

pub(crate) mod large;
pub(crate) mod peer;
pub(crate) mod router;

use std::time::Duration;

use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

/// The core of the router's side, and that of everyone else.
pub(crate) const ROUTER: usize = 0;
pub(crate) const OTHERS: usize = 1;

/// Keeps this thread, and those it starts, on one core. On a machine without it they stay free.
pub(crate) fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    let _ = sched_setaffinity(None, &cores);
}

/// CPU time used by this thread alone.
pub(crate) fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// CPU time used by every thread of this process.
pub(crate) fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).expect("a CPU clock never goes below zero")
}

/// What one setting gave in every round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        let place = self.0.partition_point(|other| *other < value);
        self.0.insert(place, value);
    }

    /// The value that this part of the samples does not exceed.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((part * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Between which values the true median lies, 95 times in 100.
    pub(crate) fn interval(&self) -> [f64; 2] {
        let half = 0.98 / (self.0.len().max(1) as f64).sqrt();
        [(0.5 - half).max(0.0), (0.5 + half).min(1.0)].map(|part| self.quantile(part))
    }

    pub(crate) fn spread(&self, digits: usize) -> String {
        let [low, middle, high] = [0.0, 0.5, 1.0].map(|part| self.quantile(part));
        format!("{middle:.digits$} ({low:.digits$} to {high:.digits$})")
    }
}

/// The setting `--rounds N` from the command line, so that a run can be short.
pub(crate) fn rounds(usual: usize) -> usize {
    let mut words = std::env::args().skip_while(|word| word != "--rounds").skip(1);
    words.next().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

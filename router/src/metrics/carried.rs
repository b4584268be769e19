//! Counts of the processes that this one replaced, so that no counter falls at a handover.

use std::{collections::HashMap, fmt::Write};

use parking_lot::Mutex;

use super::{REPORTED, page::kind};

/// By series, what was counted before this process; of those that it counts itself.
#[derive(Debug, Default)]
pub struct Carried(Mutex<HashMap<String, f64>>);

impl Carried {
    /// Takes what a page of the process before shows in place of what was taken last.
    pub fn set(&self, page: &str) {
        let mut counts = HashMap::new();
        each(page, |_, sample| {
            if let Some((series, value)) = sample {
                counts.insert(series.to_owned(), value);
            }
        });
        *self.0.lock() = counts;
    }

    /// The page of this process, with what was counted before it.
    pub fn add_to(&self, page: String) -> String {
        let counts = self.0.lock();
        if counts.is_empty() {
            return page;
        }
        let mut sum = String::with_capacity(page.len());
        each(&page, |line, sample| {
            let carried = sample.and_then(|(series, value)| {
                let before = counts.get(series)?;
                Some((series, before + value))
            });
            let written = match carried {
                Some((series, value)) => writeln!(sum, "{series} {value}"),
                None => writeln!(sum, "{line}"),
            };
            written.expect("a string takes all that is written to it");
        });
        sum
    }
}

/// Each line of a page, with its series and value if it is a count of the router's own.
fn each<'p>(page: &'p str, mut take: impl FnMut(&'p str, Option<(&'p str, f64)>)) {
    let mut is_count = false;
    for line in page.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap_or((typed, ""));
            is_count = kind != kind::GAUGE && !REPORTED.iter().any(|spec| spec.name == name);
        }
        let sample = line.rsplit_once(' ').filter(|_| is_count && !line.starts_with('#'));
        take(line, sample.and_then(|(series, value)| Some((series, value.parse().ok()?))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP sluice_requests_total Requests.\n\
        # TYPE sluice_requests_total counter\n\
        sluice_requests_total{model=\"m\",outcome=\"served\"} 7\n\
        # HELP sluice_queue_requests Waiting.\n\
        # TYPE sluice_queue_requests gauge\n\
        sluice_queue_requests{model=\"m\"} 5\n\
        # HELP sluice_queue_duration_seconds Waited.\n\
        # TYPE sluice_queue_duration_seconds histogram\n\
        sluice_queue_duration_seconds_bucket{model=\"m\",le=\"0.001\"} 3\n\
        sluice_queue_duration_seconds_sum{model=\"m\"} 0.5\n\
        # HELP sluice_worker_slice_busy_seconds_total Busy.\n\
        # TYPE sluice_worker_slice_busy_seconds_total counter\n\
        sluice_worker_slice_busy_seconds_total{slice=\"s\"} 9.5\n";

    #[test]
    fn counters_and_histograms_add_up_and_nothing_else() {
        let carried = Carried::default();
        assert_eq!(carried.add_to(PAGE.to_owned()), PAGE);
        carried.set(PAGE);
        let sum = PAGE.replace("} 7\n", "} 14\n").replace("} 3\n", "} 6\n");
        assert_eq!(carried.add_to(PAGE.to_owned()), sum.replace("} 0.5\n", "} 1\n"));
    }

    #[test]
    fn series_that_are_gone_are_not_shown_again() {
        let carried = Carried::default();
        carried.set(PAGE);
        let other = PAGE.replace("\"m\"", "\"n\"");
        assert_eq!(carried.add_to(other.clone()), other);
    }
}

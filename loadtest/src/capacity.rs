//! The highest rate at which the objective holds.
//!
//! Doubling finds a rate that fails, halving one that holds, and bisection closes in. The search
//! decides by numbers alone; whoever runs it makes the trials.

use serde::{Deserialize, Serialize};

use crate::{
    plan::{Plan, Source},
    report::Report,
    table,
};

/// How near the two rates must come: five percent.
const NEAR: f64 = 1.05;
/// Most trials in one search.
const MAX_TRIALS: usize = 24;
/// A search that falls below this found that nothing holds.
const LOWEST_RPS: f64 = 0.1;

#[derive(Clone, Debug)]
pub struct Search {
    held: Option<f64>,
    missed: Option<f64>,
    next: f64,
    trials: usize,
}

impl Search {
    /// Starts at `rate_rps`, which is above zero.
    pub fn new(rate_rps: f64) -> Self {
        assert!(rate_rps > 0.0, "a rate is above zero, not {rate_rps}");
        Self { held: None, missed: None, next: rate_rps, trials: 0 }
    }

    /// The rate to try next, or `None` when the search is over.
    pub fn next_rps(&self) -> Option<f64> {
        let near = match (self.held, self.missed) {
            (Some(held), Some(missed)) => missed / held <= NEAR,
            (Some(_) | None, None) | (None, Some(_)) => false,
        };
        (!near && self.trials < MAX_TRIALS && self.next >= LOWEST_RPS).then_some(self.next)
    }

    pub fn tell(&mut self, held: bool) {
        self.trials += 1;
        if held {
            self.held = Some(self.next);
        } else {
            self.missed = Some(self.next);
        }
        self.next = match (self.held, self.missed) {
            (Some(held), Some(missed)) => (held * missed).sqrt(),
            (Some(held), None) => held * 2.0,
            (None, Some(missed)) => missed / 2.0,
            (None, None) => self.next,
        };
    }

    pub fn held_rps(&self) -> Option<f64> {
        self.held
    }

    /// The lowest rate that did not.
    pub fn missed_rps(&self) -> Option<f64> {
        self.missed
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// Requests per second, of all streams together.
    pub rate_rps: f64,
    pub objective_met: bool,
    pub share_in_time: f64,
    pub throughput_rps: f64,
    pub p99_ms: f64,
    pub client_limited: bool,
}

impl Trial {
    pub fn new(rate_rps: f64, report: &Report) -> Self {
        let p99 = report.streams.iter().map(|stream| stream.latency.p99_ms);
        Self {
            rate_rps,
            objective_met: report.objective_met,
            share_in_time: report.total.share_in_time,
            throughput_rps: report.total.throughput_rps,
            p99_ms: p99.fold(0.0, f64::max),
            client_limited: report.client.limited,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Capacity {
    /// The highest rate at which every objective held; absent if none did.
    pub held_rps: Option<f64>,
    /// The lowest rate at which one did not; absent if all did.
    pub missed_rps: Option<f64>,
    /// Whether the lowest missed rate was missed by a client that could not keep up.
    pub client_limited: bool,
    /// Every rate tried, in order.
    pub trials: Vec<Trial>,
}

impl Capacity {
    pub fn find<E>(
        rate_rps: f64,
        mut run: impl FnMut(f64) -> Result<Option<Report>, E>,
    ) -> Result<Self, E> {
        let mut search = Search::new(rate_rps);
        let mut trials: Vec<Trial> = Vec::new();
        while let Some(rate_rps) = search.next_rps() {
            let Some(report) = run(rate_rps)? else { break };
            let trial = Trial::new(rate_rps, &report);
            search.tell(trial.objective_met);
            trials.push(trial);
        }
        let missed_rps = search.missed_rps();
        let lowest = trials.iter().find(|trial| Some(trial.rate_rps) == missed_rps);
        let client_limited = lowest.is_some_and(|trial| trial.client_limited);
        Ok(Self { held_rps: search.held_rps(), missed_rps, client_limited, trials })
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("its keys are strings") + "\n"
    }

    pub fn render(&self) -> String {
        let head = ["rate/s", "answers/s", "in time", "p99 ms", "objective"].map(str::to_owned);
        let row = |trial: &Trial| {
            let met = if trial.objective_met { "met" } else { "missed" };
            let limited = if trial.client_limited { ", client limited" } else { "" };
            vec![
                format!("{:.1}", trial.rate_rps),
                format!("{:.1}", trial.throughput_rps),
                format!("{:.2}%", 100.0 * trial.share_in_time),
                table::millis(trial.p99_ms),
                format!("{met}{limited}"),
            ]
        };
        let rows: Vec<Vec<String>> = self.trials.iter().map(row).collect();
        let verdict = match (self.held_rps, self.missed_rps) {
            (Some(held), Some(missed)) => {
                format!("the objective holds at {held:.1} req/s and is missed at {missed:.1}")
            }
            (Some(held), None) => format!("the objective holds at {held:.1} req/s, the most tried"),
            (None, Some(_)) | (None, None) => "the objective held at no rate tried".to_owned(),
        };
        let caution = match self.client_limited {
            true => "THE CLIENT ITSELF WAS THE LIMIT: the server may hold more\n",
            false => "",
        };
        format!("{}\n{verdict}\n{caution}", table::align(&head, &rows))
    }
}

impl Plan {
    pub fn rate_rps(&self) -> f64 {
        self.streams.iter().map(|stream| stream.source.rate_rps(self.length)).sum()
    }

    /// The same plan at another rate, each stream keeping its share; a trace is sped up.
    pub fn at_rate(&self, rate_rps: f64) -> Self {
        let factor = rate_rps / self.rate_rps();
        let mut plan = self.clone();
        for stream in &mut plan.streams {
            match &mut stream.source {
                Source::Process(process) => process.rate_rps *= factor,
                Source::List(list) => list.iter_mut().for_each(|at| *at = at.div_f64(factor)),
            }
        }
        if plan.streams.iter().all(|stream| matches!(stream.source, Source::List(_))) {
            plan.length = plan.length.div_f64(factor);
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(start: f64, capacity: f64) -> (Search, usize) {
        let mut search = Search::new(start);
        let mut trials = 0;
        while let Some(rate) = search.next_rps() {
            search.tell(rate <= capacity);
            trials += 1;
        }
        (search, trials)
    }

    #[test]
    fn the_search_ends_within_five_percent_below_the_capacity() {
        for capacity in [0.7, 3.0, 99.0, 100.0, 761.9, 20_000.0] {
            let (search, trials) = search(100.0, capacity);
            let held = search.held_rps().unwrap();
            assert!(held <= capacity && held * NEAR >= capacity, "{held} for {capacity}");
            assert!(trials <= MAX_TRIALS, "{trials} trials for {capacity}");
        }
    }

    #[test]
    fn a_server_that_holds_nothing_ends_the_search() {
        let (search, trials) = search(100.0, 0.0);
        assert_eq!(search.held_rps(), None);
        assert!(trials < MAX_TRIALS, "{trials}");
    }

    #[test]
    fn a_server_that_holds_everything_ends_the_search() {
        let (search, trials) = search(1.0, f64::INFINITY);
        assert_eq!(search.missed_rps(), None);
        assert_eq!(trials, MAX_TRIALS);
    }
}

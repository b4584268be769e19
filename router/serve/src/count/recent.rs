//! What a model did in the last few minutes, from counts taken every few seconds.

use std::{collections::VecDeque, time::Duration};

use policy::moment::Moment;
use serde::{Deserialize, Serialize};

use super::Totals;

pub const EVERY: Duration = Duration::from_secs(5);
/// Over how long the objective is judged.
const JUDGED: Duration = Duration::from_secs(300);
/// Over how long, at least, rates are measured.
const RATED: Duration = Duration::from_secs(10);

/// The counts of the last minutes, oldest first.
#[derive(Debug)]
pub struct Recent {
    samples: VecDeque<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Moment,
    totals: Totals,
    waiting: usize,
}

impl Recent {
    /// A memory that begins with nothing counted.
    pub fn new(now: Moment) -> Self {
        let totals = Totals::default();
        Self { samples: VecDeque::from([Sample { at: now, totals, waiting: 0 }]) }
    }

    /// Takes the counts of `now`, when so many wait.
    pub fn take(&mut self, now: Moment, totals: Totals, waiting: usize) {
        self.samples.push_back(Sample { at: now, totals, waiting });
        // One sample is kept from before the time that is judged, to count from.
        while self.samples.get(1).is_some_and(|sample| now.since(sample.at) >= JUDGED) {
            self.samples.pop_front();
        }
    }

    /// How it has gone until `now`, when the counts are `totals`.
    pub fn view(&self, now: Moment, totals: &Totals) -> RecentView {
        let here = Sample { at: now, totals: *totals, waiting: 0 };
        let oldest = self.samples.front().copied().unwrap_or(here);
        let rated = self.samples.iter().rev().find(|sample| now.since(sample.at) >= RATED);
        view(rated.copied().unwrap_or(oldest), oldest, here)
    }

    pub fn history(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for (index, here) in self.samples.iter().enumerate().skip(1) {
            // A chart shows what each stretch was like; the whole is judged elsewhere.
            let before = self.samples[index - 1];
            let shown = view(before, before, *here);
            points.push(Point {
                from_s: here.at.since(Moment::default()).as_secs_f64(),
                attainment: shown.attainment,
                served_rps: shown.served_rps,
                refused_rps: shown.refused_rps,
                waiting: here.waiting,
            });
        }
        points
    }
}

/// What lies between samples: rates since one, the objective since another.
fn view(rated: Sample, judged: Sample, here: Sample) -> RecentView {
    let eligible = here.totals.eligible().saturating_sub(judged.totals.eligible());
    let within = here.totals.within_objective.saturating_sub(judged.totals.within_objective);
    let seconds = here.at.since(rated.at).as_secs_f64();
    let rate = |count: fn(&Totals) -> u64| {
        let counted = count(&here.totals).saturating_sub(count(&rated.totals)) as f64;
        if seconds > 0.0 { counted / seconds } else { 0.0 }
    };
    RecentView {
        judged_s: here.at.since(judged.at).as_secs_f64(),
        // A request in time may be counted a moment before it is counted at all.
        attainment: (eligible > 0).then(|| (within as f64 / eligible as f64).min(1.0)),
        rated_s: seconds,
        served_rps: rate(|totals| totals.served),
        refused_rps: rate(Totals::refused),
        abandoned_rps: rate(|totals| totals.abandoned),
        failed_rps: rate(|totals| totals.failed),
    }
}

/// How a model did in one stretch of the last minutes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// When the stretch ended, in seconds since the router started.
    pub from_s: f64,
    /// The share of requests answered within the objective; absent if none was to be.
    pub attainment: Option<f64>,
    pub served_rps: f64,
    pub refused_rps: f64,
    pub waiting: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecentView {
    /// Seconds over which `attainment` was counted.
    pub judged_s: f64,
    /// The share of requests answered within the objective; absent if none was to be.
    pub attainment: Option<f64>,
    /// Seconds over which the rates were measured.
    pub rated_s: f64,
    pub served_rps: f64,
    pub refused_rps: f64,
    pub abandoned_rps: f64,
    pub failed_rps: f64,
}

#[cfg(test)]
mod tests {
    use super::super::Refusals;
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_micros(seconds * 1_000_000)
    }

    fn totals(served: u64, within_objective: u64) -> Totals {
        Totals { served, within_objective, ..Totals::default() }
    }

    #[test]
    fn what_is_older_than_five_minutes_is_forgotten() {
        let mut recent = Recent::new(at(0));
        // A bad minute, then only good ones: 10 requests a second, each in time.
        recent.take(at(60), totals(600, 0), 0);
        for tick in 1..=72 {
            recent.take(at(60 + tick * 5), totals(600 + tick * 50, tick * 50), 3);
        }
        let view = recent.view(at(420), &totals(600 + 72 * 50, 72 * 50));
        assert_eq!(view.attainment, Some(1.0));
        assert_eq!((view.judged_s, view.rated_s, view.served_rps), (300.0, 10.0, 10.0));
    }

    #[test]
    fn the_past_is_told_stretch_by_stretch() {
        let mut recent = Recent::new(at(0));
        recent.take(at(5), totals(10, 5), 7);
        recent.take(at(10), totals(30, 25), 2);
        let [first, second] = recent.history().try_into().unwrap();
        assert_eq!((first.from_s, first.attainment, first.served_rps), (5.0, Some(0.5), 2.0));
        assert_eq!((second.attainment, second.served_rps), (Some(1.0), 4.0));
        assert_eq!((first.waiting, second.waiting), (7, 2));
    }

    #[test]
    fn a_young_router_is_judged_from_its_start() {
        let recent = Recent::new(at(0));
        let view = recent.view(at(2), &totals(4, 3));
        assert_eq!((view.attainment, view.judged_s), (Some(0.75), 2.0));
        assert_eq!(view.served_rps, 2.0);
        assert_eq!(Recent::new(at(0)).view(at(0), &Totals::default()).attainment, None);
    }

    #[test]
    fn the_callers_own_mistakes_do_not_count_against_the_objective() {
        let refusals = Refusals {
            invalid: 5,
            quota: 7,
            too_late: 1,
            deadline_too_short: 11,
            ..Refusals::default()
        };
        let totals =
            Totals { served: 3, within_objective: 3, abandoned: 9, refusals, ..Totals::default() };
        let view = Recent::new(at(0)).view(at(1), &totals);
        assert_eq!(view.attainment, Some(0.75));
    }
}

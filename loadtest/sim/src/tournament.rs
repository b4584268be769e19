//! The named rules against each other and against the best fixed batch size.
//!
//! A course is a latency curve under one objective. Its capacity is the most rows per second that
//! any batch size within the objective gives, back to back; loads are multiples of it. The score is
//! goodput: requests answered by their deadline, per second. All meet the same arrivals.

use std::time::Duration;

use policy::{
    dispatch::Settings,
    rule::{Aimd, Bound, Deadline, Decision, Deferred, EarlyDrop, Guard, Rule, Slo, Timeout, View},
};

use crate::{
    clairvoyant,
    curve::Curve,
    report::Outcome,
    scenario::{Scenario, Stream},
    world::MakeRule,
};

pub const LOADS: [f64; 4] = [0.5, 0.9, 1.2, 2.0];

const RELAXED: Duration = Duration::from_millis(50);
const COUNTED: Duration = Duration::from_secs(2);
const WARMUP: Duration = Duration::from_secs(1);
const FORESEEN: Duration = Duration::from_secs(2);
const FEW: usize = 4_000;
/// Seeds by which the best fixed size is chosen; it is then measured over as many as the rest.
const SEARCH_SEEDS: u64 = 2;

#[derive(Clone, Copy, Debug)]
pub struct Course {
    pub name: &'static str,
    pub curve: Curve,
    pub noise: f64,
    pub max_batch: u32,
    pub objective: Duration,
}

/// Five curves, and two of them under objectives that leave little room beside a batch.
pub const COURSES: [Course; 8] = [
    Course {
        name: "flat",
        curve: Curve::Linear { fixed_ms: 20.0, row_ms: 0.05 },
        noise: 0.0,
        max_batch: 32,
        objective: RELAXED,
    },
    Course {
        name: "linear",
        curve: Curve::Linear { fixed_ms: 10.0, row_ms: 1.0 },
        noise: 0.0,
        max_batch: 32,
        objective: RELAXED,
    },
    Course {
        name: "knee",
        curve: Curve::Knee { fixed_ms: 8.0, row_ms: 0.25, at: 16, past_ms: 2.0 },
        noise: 0.0,
        max_batch: 64,
        objective: RELAXED,
    },
    Course {
        name: "steep",
        curve: Curve::Steep { one_ms: 3.0, power: 1.3 },
        noise: 0.0,
        max_batch: 32,
        objective: RELAXED,
    },
    Course {
        name: "noisy",
        curve: Curve::Linear { fixed_ms: 8.0, row_ms: 0.5 },
        noise: 0.25,
        max_batch: 64,
        objective: RELAXED,
    },
    Course {
        name: "linear, 25 ms",
        curve: Curve::Linear { fixed_ms: 10.0, row_ms: 1.0 },
        noise: 0.0,
        max_batch: 32,
        objective: Duration::from_millis(25),
    },
    Course {
        name: "fast, 25 ms",
        curve: Curve::Linear { fixed_ms: 2.0, row_ms: 0.1 },
        noise: 0.0,
        max_batch: 64,
        objective: Duration::from_millis(25),
    },
    Course {
        name: "fast, 10 ms",
        curve: Curve::Linear { fixed_ms: 2.0, row_ms: 0.1 },
        noise: 0.0,
        max_batch: 64,
        objective: Duration::from_millis(10),
    },
];

impl Course {
    pub fn capacity(&self) -> f64 {
        (1..=self.max_batch)
            .filter(|size| self.curve.mean(*size) <= self.objective)
            .map(|size| f64::from(size) / self.curve.mean(size).as_secs_f64())
            .fold(0.0, f64::max)
    }

    pub fn outcome(&self, load: f64, seeds: u64, rule: MakeRule<'_>) -> Outcome {
        let settings = Settings {
            objective: self.objective,
            max_batch: self.max_batch,
            way: Duration::ZERO,
            lead: Duration::ZERO,
            margin: Duration::ZERO,
        };
        let scenario = Scenario {
            settings,
            noise: self.noise,
            streams: vec![Stream::plain(load * self.capacity())],
            duration: WARMUP + COUNTED,
            warmup: WARMUP,
            ..Scenario::routed(self.curve, self.max_batch, self.objective)
        };
        scenario.outcomes(seeds, rule)[0]
    }

    pub fn best_fixed(&self, load: f64, seeds: u64) -> (u32, Outcome) {
        let at = |batch, seeds| self.outcome(load, seeds, &|| Box::new(Fixed { batch }));
        let best = (1..=self.max_batch)
            .filter(|batch| self.curve.mean(*batch) <= self.objective)
            .max_by_key(|batch| at(*batch, SEARCH_SEEDS).in_time)
            .unwrap_or(1);
        (best, at(best, seeds))
    }

    /// Requests per second in time at `load`, if all arrivals were known beforehand; none where it
    /// is not known how long a batch takes.
    pub fn clairvoyant(&self, load: f64) -> Option<f64> {
        if self.noise > 0.0 {
            return None;
        }
        let rate_rps = load * self.capacity();
        let count = ((rate_rps * FORESEEN.as_secs_f64()) as usize).max(FEW);
        let arrivals = clairvoyant::poisson(count, rate_rps, 0);
        let takes: Vec<Duration> = (1..=self.max_batch).map(|rows| self.curve.mean(rows)).collect();
        let served = clairvoyant::most_in_time(&arrivals, &takes, self.objective);
        Some(rate_rps * served as f64 / count as f64)
    }
}

pub fn goodput(outcome: &Outcome, seeds: u64) -> f64 {
    outcome.in_time as f64 / (COUNTED.as_secs_f64() * seeds as f64)
}

/// A rule of the tournament, made anew for each run.
pub type Entrant = (&'static str, fn(&Course) -> Box<dyn Rule>);

/// Every named rule, ours first.
///
/// `timeout` has the largest batch and a tenth of the objective, which is what people set who do
/// not know the curve.
pub const ENTRANTS: [Entrant; 6] = [
    ("slo", |_| Box::new(Slo)),
    ("aimd", |_| Box::new(Aimd)),
    ("deadline", |_| Box::new(Deadline)),
    ("earlydrop", |_| Box::new(EarlyDrop)),
    ("deferred", |_| Box::new(Deferred)),
    ("timeout", |course| {
        Box::new(Timeout { batch: course.max_batch, delay: course.objective / 10 })
    }),
];

/// At most `batch` rows at once, without delay, passing over what would be late.
///
/// More than any server's fixed size does: it knows the true curve and drops the hopeless.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    pub batch: u32,
}

impl Rule for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        let rows = u32::try_from(view.line.rows()).unwrap_or(u32::MAX);
        let finish = view.start + view.latency.mean(self.batch.min(rows));
        let late = view.line.iter().take_while(|waiting| waiting.by() < finish).count();
        let skip = late.min(view.line.len() - 1);
        let take = view.fit(skip, self.batch).count;
        Decision::Send { skip, take, drop_skipped: true, bound: Bound::Limit }
    }

    fn guard(&self) -> Guard {
        Guard::Off
    }

    fn predicts(&self) -> bool {
        false
    }
}

//! Replicas that come and go as a forecast asks, in virtual time.
//!
//! Time goes in ticks. Requests come at a rate with the deviation of chance; replicas, once loaded,
//! serve them first come, first served; who would wait longer than the objective is lost.

use std::time::Duration;

use policy::{
    demand::{Demand, Rule, Seen, with_room},
    moment::Moment,
};
use simgpu::random::Random;

/// What is served, and by what.
#[derive(Clone, Copy)]
pub(crate) struct World<'a> {
    /// Requests per second at each moment, in seconds.
    pub(crate) rate: &'a dyn Fn(f64) -> f64,
    pub(crate) length: Duration,
    pub(crate) tick: Duration,
    /// Requests per second of one replica.
    pub(crate) replica_rps: f64,
    /// From asking for a replica to having it.
    pub(crate) load_time: Duration,
    pub(crate) slo: Duration,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// As many as the forecast asks for.
    Forecast,
    Peak,
    /// As many as are needed, known in advance.
    Clairvoyant,
}

pub(crate) struct Outcome {
    pub(crate) attained: f64,
    pub(crate) replica_hours: f64,
    /// Changes of the number of replicas that are wanted.
    pub(crate) changes: u32,
    /// Hours, requests per second, and what is provided.
    pub(crate) curve: Vec<(f64, f64, f64)>,
}

/// Nearly normal, with mean 0 and deviation 1.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

impl World<'_> {
    fn needed(&self, rate_rps: f64) -> f64 {
        (with_room(rate_rps) / self.replica_rps).ceil()
    }

    /// The highest rate between `from` and a load time later.
    fn highest(&self, from: f64) -> f64 {
        let ticks = (self.load_time.as_secs_f64() / self.tick.as_secs_f64()).ceil() as u32;
        let at = |tick: u32| from + f64::from(tick) * self.tick.as_secs_f64();
        (0..=ticks).map(|tick| (self.rate)(at(tick))).fold(0.0, f64::max)
    }

    pub(crate) fn run(&self, way: Way) -> Outcome {
        let tick_s = self.tick.as_secs_f64();
        let ticks = (self.length.as_secs_f64() / tick_s) as u32;
        let mut random = Random::new(self.seed);
        let mut demand = Demand::new(Rule { slo: self.slo, ..Rule::default() });
        let peak = (0..ticks).map(|tick| (self.rate)(f64::from(tick) * tick_s)).fold(0.0, f64::max);
        let mut ready = match way {
            Way::Forecast | Way::Clairvoyant => self.needed((self.rate)(0.0)),
            Way::Peak => self.needed(peak),
        };
        let mut loading: Vec<(f64, f64)> = Vec::new();
        let (mut asked, mut lost, mut backlog) = (0.0, 0.0, 0.0);
        let mut outcome =
            Outcome { attained: 0.0, replica_hours: 0.0, changes: 0, curve: Vec::new() };
        for tick in 0..ticks {
            let now_s = f64::from(tick) * tick_s;
            let rate = (self.rate)(now_s);
            let mean = rate * tick_s;
            let came = (mean + mean.sqrt() * normal(&mut random)).max(0.0).round();
            loading.retain(|(at, count)| {
                let done = *at <= now_s;
                ready += if done { *count } else { 0.0 };
                !done
            });
            let capacity = ready * self.replica_rps;
            backlog = (backlog + came - capacity * tick_s).max(0.0);
            let late = (backlog - capacity * self.slo.as_secs_f64()).max(0.0).min(came);
            backlog -= late;
            asked += came;
            lost += late;
            let moment = Moment::default() + self.tick * (tick + 1);
            let seen = Seen { arrived: came as u64, late: late as u64, waiting: backlog as u64 };
            demand.observe(seen, moment);
            let held = ready + loading.iter().map(|(_, count)| count).sum::<f64>();
            let wanted = match way {
                Way::Forecast => {
                    let forecast = demand.forecast(capacity, self.load_time, moment);
                    (forecast.rate_rps / self.replica_rps).ceil()
                }
                Way::Peak => ready,
                Way::Clairvoyant => self.needed(self.highest(now_s + tick_s)),
            };
            outcome.changes += u32::from(wanted != held);
            match way {
                Way::Clairvoyant => ready = wanted,
                Way::Forecast if wanted > held => {
                    loading.push((now_s + tick_s + self.load_time.as_secs_f64(), wanted - held));
                }
                Way::Forecast if wanted < held => {
                    loading.clear();
                    ready = ready.min(wanted);
                }
                Way::Forecast | Way::Peak => {}
            }
            outcome.replica_hours += held * tick_s / 3_600.0;
            if tick % (ticks / 1_000).max(1) == 0 {
                outcome.curve.push((now_s / 3_600.0, rate, held * self.replica_rps));
            }
        }
        outcome.attained = 1.0 - lost / asked;
        outcome
    }
}

/// The production rates, as straight lines between ten-minute means.
pub(crate) fn production(text: &str) -> (impl Fn(f64) -> f64, Duration) {
    let points: Vec<(f64, f64)> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(','))
        .filter_map(|(at, rate)| Some((at.parse().ok()?, rate.parse().ok()?)))
        .collect();
    let last = points.last().map_or(0.0, |(at, _)| *at);
    let rate = move |at: f64| {
        let above = points.partition_point(|(known, _)| *known <= at).min(points.len() - 1);
        let (from, to) = (points[above.saturating_sub(1)], points[above]);
        let along = ((at - from.0) / (to.0 - from.0).max(1.0)).clamp(0.0, 1.0);
        from.1 + along * (to.1 - from.1)
    };
    (rate, Duration::from_secs_f64(last))
}

//! How much of each model will be asked for, from what its dispatcher counts.

use std::{collections::HashMap, time::Duration};

use policy::{
    demand::{Day, Demand, Forecast, Habit, Rule, Seen},
    fleet::Traffic,
    moment::Moment,
};

use crate::{leader::Load, learned::Asked};

/// How often counts are taken.
const EVERY: Duration = Duration::from_secs(1);
/// What loading a model is taken to last before one was seen to load.
const LOAD_TIME: Duration = Duration::from_secs(5);
/// No model is taken to load for longer, whatever a file says.
const LONGEST_LOAD: Duration = Duration::from_secs(3_600);

/// The forecasts of all models.
#[derive(Debug, Default)]
pub(super) struct Demands {
    models: HashMap<String, Followed>,
    /// What was kept of models that were not looked at yet.
    recalled: HashMap<String, Recalled>,
}

#[derive(Debug)]
struct Recalled {
    asked: Asked,
    /// How old it was when it was recalled, and when that was.
    away: (Duration, Day),
}

#[derive(Debug)]
struct Followed {
    demand: Demand,
    rule: Rule,
    taken_at: Moment,
    arrived: u64,
    late: u64,
    /// Whether more of the last second's requests missed their objective than may.
    losing: bool,
    /// The longest that a replica was seen to take from being asked for to being ready.
    load_time: Option<Duration>,
}

impl Demands {
    /// Takes note of what was asked of a model, here and of `others`.
    pub(super) fn observe(
        &mut self,
        model: &config::Model,
        (traffic, others): (&Traffic, Load),
        (settings, now): (&config::Planner, Moment),
    ) {
        let rule = rule(settings, model.slo);
        let Load { arrived, late, waiting, .. } = Load::from(traffic).with(others);
        let known = self.models.entry(model.name.clone()).or_insert_with(|| {
            let mut demand = Demand::new(rule);
            let mut load_time = None;
            if let Some(Recalled { asked, away: (away, day) }) = self.recalled.remove(&model.name) {
                let Asked { minutes, usual, load_ms } = asked;
                demand.recall(&Habit { minutes, usual }, away, day);
                load_time = load_ms.map(|millis| Duration::from_millis(millis).min(LONGEST_LOAD));
            }
            Followed { demand, rule, taken_at: now, arrived, late, losing: false, load_time }
        });
        if known.rule != rule {
            known.rule = rule;
            known.demand.adopt(rule);
        }
        if now.since(known.taken_at) < EVERY {
            return;
        }
        // A request of several rows is as much work as several of one.
        let scaled = |count: u64| (count as f64 * traffic.rows_per_request).round() as u64;
        let seen = Seen {
            arrived: scaled(arrived.saturating_sub(known.arrived)),
            late: scaled(late.saturating_sub(known.late)),
            waiting: scaled(waiting),
        };
        known.losing = seen.late as f64 > (1.0 - model.slo_target) * seen.arrived as f64;
        known.demand.observe(seen, now);
        (known.taken_at, known.arrived, known.late) = (now, arrived, late);
    }

    /// What to provide for, where `provided_rps` is ready and slices are to be had in `notice`.
    pub(super) fn forecast(
        &mut self,
        model: &str,
        provided_rps: f64,
        notice: Duration,
        now: Moment,
    ) -> Forecast {
        match self.models.get_mut(model) {
            Some(known) => {
                let load_time = known.load_time.unwrap_or(LOAD_TIME);
                known.demand.forecast(provided_rps, notice + load_time, now)
            }
            None => Forecast { rate_rps: 0.0, floor_rps: 0.0, why: policy::demand::Why::Idle },
        }
    }

    /// Whether requests of a model are being lost.
    pub(super) fn is_losing(&self, model: &str) -> bool {
        self.models.get(model).is_some_and(|known| known.losing)
    }

    /// How long a replica takes to load, as far as is known.
    pub(super) fn load_time(&self, model: &str) -> Duration {
        self.models.get(model).and_then(|known| known.load_time).unwrap_or(LOAD_TIME)
    }

    /// A replica was ready so long after it was asked for.
    pub(super) fn loaded(&mut self, model: &str, took: Duration) {
        if let Some(known) = self.models.get_mut(model) {
            known.load_time = Some(known.load_time.map_or(took, |before| before.max(took)));
        }
    }

    /// Forgets models that are served no more.
    pub(super) fn keep(&mut self, served: impl Fn(&str) -> bool) {
        self.models.retain(|name, _| served(name));
        self.recalled.retain(|name, _| served(name));
    }

    /// What is worth keeping of a model.
    pub(super) fn kept(&self, model: &str, day: Day) -> Asked {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let Some(known) = self.models.get(model) else {
            let recalled = self.recalled.get(model);
            return recalled.map(|recalled| recalled.asked.clone()).unwrap_or_default();
        };
        let Habit { minutes, usual } = known.demand.habit(day);
        let hundredths = |rate: f64| (rate * 100.0).round() / 100.0;
        let is_known = usual.iter().any(Option::is_some);
        Asked {
            minutes: minutes.into_iter().map(hundredths).collect(),
            usual: if is_known {
                usual.into_iter().map(|rate| rate.map(hundredths)).collect()
            } else {
                Vec::new()
            },
            load_ms: known.load_time.map(millis),
        }
    }

    /// Takes up what was kept of a model and is as old as `away` says.
    pub(super) fn recall(&mut self, model: &str, kept: &Asked, away: (Duration, Day)) {
        self.recalled.insert(model.to_owned(), Recalled { asked: kept.clone(), away });
    }
}

fn rule(settings: &config::Planner, objective: Duration) -> Rule {
    Rule {
        patience: settings.patience,
        history: settings.history,
        idle: settings.idle,
        slo: objective,
        ..Rule::default()
    }
}

//! How much of each model will be asked for, from what its dispatcher counts.

use std::{collections::HashMap, time::Duration};

use policy::{
    demand::{Demand, Forecast, Rule, Seen},
    moment::Moment,
};

use crate::{config, http::backend::Served, lead::Load, model::Model};

/// How often counts are taken.
const EVERY: Duration = Duration::from_secs(1);
/// What loading a model is taken to last before one was seen to load.
const LOAD_TIME: Duration = Duration::from_secs(5);

/// The forecasts of all models.
#[derive(Debug, Default)]
pub(super) struct Demands {
    models: HashMap<String, Followed>,
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
        model: &Model,
        others: Load,
        (settings, now): (&config::Planner, Moment),
    ) {
        let objective = model.objective().0;
        let rule = rule(settings, objective);
        let Load { arrived, late, waiting, .. } = Load::of(model).with(others);
        let known = self.models.entry(model.name().to_owned()).or_insert_with(|| Followed {
            demand: Demand::new(rule),
            rule,
            taken_at: now,
            arrived,
            late,
            losing: false,
            load_time: None,
        });
        if known.rule != rule {
            known.rule = rule;
            known.demand.adopt(rule);
        }
        if now.since(known.taken_at) < EVERY {
            return;
        }
        // A request of several rows is as much work as several of one.
        let stats = model.stats();
        let answered = stats.inference_stats.success.count.max(1);
        let rows = (stats.inference_count as f64 / answered as f64).max(1.0);
        let scaled = |count: u64| (count as f64 * rows).round() as u64;
        let seen = Seen {
            arrived: scaled(arrived.saturating_sub(known.arrived)),
            late: scaled(late.saturating_sub(known.late)),
            waiting: scaled(waiting),
        };
        known.losing = seen.late as f64 > (1.0 - model.config().slo_target) * seen.arrived as f64;
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

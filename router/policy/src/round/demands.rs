//! How much of each model will be asked for, from what its requests count.

use std::{collections::BTreeMap, time::Duration};

use super::{ModelTerms, RoundRules};
use crate::{
    demand::{Day, Demand, Forecast, Habit, Rule, Seen, Why},
    fleet::Traffic,
    moment::Moment,
};

/// How often counts are taken.
const EVERY: Duration = Duration::from_secs(1);
/// What loading a model is taken to last before one was seen to load.
const LOAD_TIME: Duration = Duration::from_secs(5);
/// No model is taken to load for longer, whatever a file says.
const LONGEST_LOAD: Duration = Duration::from_secs(3_600);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptDemand {
    pub habit: Habit,
    /// The longest that a replica took from being asked for to being ready.
    pub load_time: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Demands {
    models: BTreeMap<String, Followed>,
    /// What was kept of models that were not looked at yet.
    recalled: BTreeMap<String, Recalled>,
}

#[derive(Clone, Debug)]
struct Recalled {
    kept: KeptDemand,
    /// How old it was when it was recalled, and when that was.
    away: (Duration, Day),
}

#[derive(Clone, Debug)]
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
    pub(super) fn observe(
        &mut self,
        model: &ModelTerms,
        traffic: &Traffic,
        rules: &RoundRules,
        now: Moment,
    ) {
        let rule = Rule {
            patience: rules.patience,
            history: rules.history,
            idle: rules.idle,
            slo: model.slo,
            ..Rule::default()
        };
        let Traffic { arrived, late, waiting, .. } = *traffic;
        if !self.models.contains_key(&model.name) {
            let mut demand = Demand::new(rule);
            let mut load_time = None;
            if let Some(Recalled { kept, away: (away, day) }) = self.recalled.remove(&model.name) {
                demand.recall(&kept.habit, away, day);
                load_time = kept.load_time.map(|time| time.min(LONGEST_LOAD));
            }
            let followed =
                Followed { demand, rule, taken_at: now, arrived, late, losing: false, load_time };
            self.models.insert(model.name.clone(), followed);
        }
        let Some(known) = self.models.get_mut(&model.name) else { return };
        if known.rule != rule {
            known.rule = rule;
            known.demand.adopt(rule);
        }
        if now.since(known.taken_at) < EVERY {
            return;
        }
        // A request of several rows is as much work as several of one.
        let rows = traffic.rows_per_request.max(1.0);
        let scaled = |count: u64| (count as f64 * rows).round() as u64;
        let seen = Seen {
            arrived: scaled(arrived.saturating_sub(known.arrived)),
            late: scaled(late.saturating_sub(known.late)),
            waiting: scaled(waiting),
        };
        known.losing = seen.late as f64 > (1.0 - model.slo_target) * seen.arrived as f64;
        known.demand.observe(seen, now);
        (known.taken_at, known.arrived, known.late) = (now, arrived, late);
    }

    /// What to provide for, where `provided_rps` is ready and slices can be had in `notice`.
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
            None => Forecast { rate_rps: 0.0, floor_rps: 0.0, why: Why::Idle },
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

    /// Forgets models that are not served any longer.
    pub(super) fn keep(&mut self, models: &[ModelTerms]) {
        let served = |name: &str| models.iter().any(|model| model.name == name);
        self.models.retain(|name, _| served(name));
        self.recalled.retain(|name, _| served(name));
    }

    pub(super) fn kept(&self, model: &str, day: Day) -> KeptDemand {
        match self.models.get(model) {
            Some(known) => {
                KeptDemand { habit: known.demand.habit(day), load_time: known.load_time }
            }
            None => self.recalled.get(model).map(|one| one.kept.clone()).unwrap_or_default(),
        }
    }

    /// Takes up what was kept of a model and is as old as `away` says.
    pub(super) fn recall(&mut self, model: &str, kept: KeptDemand, away: (Duration, Day)) {
        self.recalled.insert(model.to_owned(), Recalled { kept, away });
    }
}

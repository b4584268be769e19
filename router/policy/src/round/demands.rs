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
/// The part of their time from which on replicas of an unmeasured model are busy, and below which they
/// have little to do.
const BUSY: f64 = 0.6;
const IDLE: f64 = 0.3;
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
    /// How many replicas it is to have while nothing of it was measured, and since when.
    counted: Option<Counted>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    replicas: u32,
    changed_at: Moment,
    /// Since when they have had little to do.
    idle_since: Option<Moment>,
}

/// The replicas of a model of which nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// All that are or start.
    pub(super) there: u32,
    pub(super) ready: u32,
    /// The busy part of the time of those that are ready, on average.
    pub(super) busy: f64,
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
            let followed = Followed {
                demand,
                rule,
                taken_at: now,
                arrived,
                late,
                losing: false,
                load_time,
                counted: None,
            };
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

    /// How many replicas a model is to have of which nothing was measured, so that no rate tells: one
    /// more when all it has are ready and busy and requests wait or are late, and one less when they
    /// had little to do for as long as what was needed is kept.
    pub(super) fn replicas(
        &mut self,
        model: &ModelTerms,
        load: Load,
        why: Why,
        now: Moment,
    ) -> u32 {
        let (least, most) = (model.replicas_min.max(1), model.replicas_max.max(1));
        let Some(known) = self.models.get_mut(&model.name) else { return least };
        let load_time = known.load_time.unwrap_or(LOAD_TIME);
        let first = Counted { replicas: load.there, changed_at: now, idle_since: None };
        let counted = known.counted.get_or_insert(first);
        counted.replicas = counted.replicas.clamp(least.min(most), most);
        let missed = known.losing || matches!(why, Why::Queue | Why::Late);
        let all_ready = load.ready >= counted.replicas;
        counted.idle_since = match counted.idle_since {
            _ if missed || load.busy > IDLE => None,
            None => Some(now),
            since => since,
        };
        let idle = counted.idle_since.is_some_and(|at| now.since(at) >= known.rule.patience);
        if missed && all_ready && load.busy >= BUSY && now.since(counted.changed_at) >= load_time {
            *counted =
                Counted { replicas: counted.replicas + 1, changed_at: now, idle_since: None };
        } else if idle && counted.replicas > least {
            let replicas = counted.replicas - 1;
            *counted = Counted { replicas, changed_at: now, idle_since: Some(now) };
        }
        counted.replicas.clamp(least.min(most), most)
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

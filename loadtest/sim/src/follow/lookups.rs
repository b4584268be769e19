//! What is looked up once: how requests go on a kind of replica, and what a plan would need.

use std::{collections::BTreeMap, sync::Arc};

use policy::plan;

use crate::{
    control::Serving,
    fleet::{SimFleet, Times},
    place::PlaceError,
    rates::{Going, Kind, Lookup, capacity},
    study::Study,
};

/// Rates are told apart in steps of this part.
const STEP: f64 = 0.02;

/// Where a replica is, as far as its speed goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReplicaKind {
    model: usize,
    kind: &'static str,
    profile: &'static str,
    /// Processes on the slice, its own among them.
    sharers: u32,
}

pub(super) struct Lookups<'a> {
    study: &'a Study,
    fleet: &'a SimFleet,
    lookup: Lookup<'a>,
    kinds: BTreeMap<ReplicaKind, Kind>,
    plans: BTreeMap<Vec<i64>, u32>,
}

impl ReplicaKind {
    fn of(serving: &Serving) -> Self {
        let Serving { model, kind, profile, sharers, .. } = *serving;
        Self { model, kind: kind.name.as_str(), profile, sharers }
    }
}

impl<'a> Lookups<'a> {
    pub(super) fn new(study: &'a Study, fleet: &'a SimFleet) -> Self {
        let (kinds, plans) = (BTreeMap::new(), BTreeMap::new());
        Self { study, fleet, lookup: Lookup::new(fleet), kinds, plans }
    }

    /// How requests of one model at `rate` go on those that serve it, and their load over capacity.
    pub(super) fn going(
        &mut self,
        serving: &[Serving],
        rate: f64,
    ) -> Result<(Going, f64), super::FollowError> {
        let mut total = 0.0;
        let mut processes = 0.0;
        for one in serving {
            let place = ReplicaKind::of(one);
            self.learn(place)?;
            total += self.kinds[&place].capacity_rps * f64::from(one.processes);
            processes += f64::from(one.processes);
        }
        let mut going = Going::default();
        if total <= 0.0 || rate <= 0.0 {
            let idle = Going { in_time: 1.0, ..going };
            return Ok((if rate <= 0.0 { idle } else { going }, 0.0));
        }
        for one in serving {
            let kind = &self.kinds[&ReplicaKind::of(one)];
            let part = kind.capacity_rps * f64::from(one.processes) / total;
            let found = self.lookup.going(kind, processes, rate / total)?;
            going.in_time += part * found.in_time;
            going.late += part * found.late;
            going.batch += part * found.batch;
        }
        Ok((going, rate / total))
    }

    fn learn(&mut self, place: ReplicaKind) -> Result<(), PlaceError> {
        if self.kinds.contains_key(&place) {
            return Ok(());
        }
        let subject = &self.study.models[place.model];
        let kind = mig::kind(place.kind).map_err(simgpu::SimError::from)?;
        let speed = subject.measured.on(kind, place.profile)?;
        let times = Arc::new(Times::of_speed(&speed, subject.max_batch, place.sharers)?);
        let objective = self.fleet.models[place.model].settings.objective;
        let capacity_rps = capacity(&times, place.sharers, objective);
        let ReplicaKind { model, sharers, .. } = place;
        self.kinds.insert(place, Kind { model, times, sharers, capacity_rps });
        Ok(())
    }

    pub(super) fn gpus_for(
        &mut self,
        problem: &plan::Problem,
        rates: &[f64],
    ) -> Result<u32, PlaceError> {
        let step = |rate: &f64| (rate.max(1e-3).ln() / STEP.ln_1p()).ceil() as i64;
        let steps: Vec<i64> = rates.iter().map(step).collect();
        if let Some(known) = self.plans.get(&steps) {
            return Ok(*known);
        }
        let mut problem = problem.clone();
        for (model, step) in problem.models.iter_mut().zip(&steps) {
            model.demand_rps = (1.0 + STEP).powi(*step as i32);
        }
        let gpus = plan::solve(&problem)?.gpus_used;
        self.plans.insert(steps, gpus);
        Ok(gpus)
    }
}

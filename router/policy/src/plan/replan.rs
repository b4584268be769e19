//! What to change when a demand has changed, leaving alone whatever can be left alone.
//!
//! Who has too much gives up what is not needed; who has too little gets new slices where there is
//! room, and nobody else is touched. Only if there is no room is the whole fleet planned anew, and
//! then bound so that as much as can be stays. So a small change costs a moment and few moves, however
//! large the fleet is. A plan from nothing may need fewer GPUs; [`solve_from`] tells.

use std::collections::BTreeMap;

use super::{
    Plan, PlanError, Problem, Slice,
    bind::alone,
    fill::Terms,
    outcome::Bounds,
    problem::Ground,
    relax::{Buying, Demand},
    room::{Offer, Room, Site},
    solve_from,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Replan {
    /// Its bounds are those of a whole plan, or 0 if only a part was looked at.
    pub plan: Plan,
    /// Replicas that must be loaded where they were not.
    pub moves: usize,
    /// Whether the whole fleet was planned anew, for want of room.
    pub anew: bool,
}

/// Replicas of `after` that are not where `before` has them.
pub fn moves(before: &[Slice], after: &[Slice]) -> usize {
    let mut had: Vec<(usize, u8, u8, usize)> = before.iter().flat_map(places).collect();
    had.sort_unstable();
    after.iter().flat_map(places).filter(|place| had.binary_search(place).is_err()).count()
}

/// GPU, start, size and model of every replica of a slice.
fn places(slice: &Slice) -> impl Iterator<Item = (usize, u8, u8, usize)> {
    let (gpu, start, end) = (slice.gpu, slice.position.start(), slice.position.end());
    slice.replicas.iter().map(move |replica| (gpu, start, end, replica.model))
}

/// Follows `current` with what `problem` now asks for.
pub fn replan(problem: &Problem, current: &[Slice]) -> Result<Replan, PlanError> {
    let mut slices = without_surplus(problem, current);
    let Some(added) = repair(problem, &slices, &BTreeMap::new()) else {
        let plan = solve_from(problem, current)?;
        return Ok(Replan { moves: moves(current, &plan.slices), plan, anew: true });
    };
    slices.extend(added);
    let plan = Plan::new(slices, Bounds::default());
    Ok(Replan { moves: moves(current, &plan.slices), plan, anew: false })
}

/// New slices for every model that has too little, beside `current` and without touching it; nothing
/// if there is no room.
///
/// A slice of `current` without replicas is somebody else's. GPUs are as `sites` say, or else open.
pub fn repair(
    problem: &Problem,
    current: &[Slice],
    sites: &BTreeMap<usize, Site>,
) -> Option<Vec<Slice>> {
    let short = shortages(problem, current);
    if short.is_empty() {
        return Some(Vec::new());
    }
    let part = Part::new(problem, &short)?;
    let ways = [true, false].map(|in_use_first| {
        part.place(Room::new(&part.ground.hardware, current, sites), in_use_first)
    });
    let gpus = |added: &Vec<Slice>| {
        let mut gpus: Vec<usize> = current.iter().chain(added).map(|slice| slice.gpu).collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus.len()
    };
    ways.into_iter().flatten().min_by_key(|added| (gpus(added), added.len()))
}

#[derive(Clone, Copy, Debug)]
struct Short {
    model: usize,
    rate_rps: f64,
    /// The fewest more slices and the most.
    replicas: (u32, u32),
}

/// What each model has: requests per second and slices.
fn held(problem: &Problem, slices: &[Slice]) -> Vec<(f64, u32)> {
    let mut held = vec![(0.0, 0); problem.models.len()];
    for replica in slices.iter().flat_map(|slice| &slice.replicas) {
        held[replica.model].0 += replica.capacity_rps;
        held[replica.model].1 += 1;
    }
    held
}

fn shortages(problem: &Problem, slices: &[Slice]) -> Vec<Short> {
    let held = held(problem, slices);
    let each = problem.models.iter().zip(held).enumerate();
    each.filter_map(|(index, (model, (capacity_rps, count)))| {
        let rate_rps = model.demand_rps - capacity_rps;
        let least = model.replicas_min.saturating_sub(count);
        let most = model.replicas_max.saturating_sub(count);
        let short = rate_rps > model.demand_rps * 1e-9 || least > 0;
        short.then_some(Short { model: index, rate_rps, replicas: (least, most) })
    })
    .collect()
}

/// Takes away the replicas without which there is still enough, the smallest first.
fn without_surplus(problem: &Problem, current: &[Slice]) -> Vec<Slice> {
    let mut held = held(problem, current);
    let mut slices = current.to_vec();
    let spare = |held: &[(f64, u32)], model: usize, capacity_rps: f64| {
        let (has_rps, count) = held[model];
        let wanted = &problem.models[model];
        count > wanted.replicas_max
            || (count > wanted.replicas_min && has_rps - capacity_rps >= wanted.demand_rps)
    };
    let mut candidates: Vec<(f64, usize, usize)> = Vec::new();
    for (index, slice) in slices.iter().enumerate() {
        for replica in &slice.replicas {
            if spare(&held, replica.model, replica.capacity_rps) {
                candidates.push((replica.capacity_rps, index, replica.model));
            }
        }
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    for (capacity_rps, index, model) in candidates {
        if spare(&held, model, capacity_rps) {
            slices[index].replicas.retain(|replica| replica.model != model);
            held[model].0 -= capacity_rps;
            held[model].1 -= 1;
        }
    }
    slices.retain(|slice| !slice.replicas.is_empty());
    slices
}

/// The problem of those who are short alone: nobody else's measurements are looked at.
struct Part {
    problem: Problem,
    ground: Ground,
    short: Vec<Short>,
}

impl Part {
    fn new(problem: &Problem, short: &[Short]) -> Option<Self> {
        let models = short.iter().map(|short| problem.models[short.model].clone()).collect();
        let fleet = problem.fleet.clone();
        let problem = Problem { models, fleet, rules: problem.rules };
        let ground = Ground::new(&problem).ok()?;
        Some(Self { problem, ground, short: short.to_vec() })
    }

    /// New slices for all who are short, or nothing if there is no room.
    fn place(&self, mut room: Room<'_>, in_use_first: bool) -> Option<Vec<Slice>> {
        let mut added = Vec::new();
        for (index, short) in self.short.iter().enumerate() {
            let capacities = self.ground.table.capacities_of(index);
            let (mut rest, (mut least, mut most)) = (short.rate_rps, short.replicas);
            while rest > 1e-9 || least > 0 {
                let offer = room.best(capacities, rest, in_use_first).filter(|_| most > 0)?;
                room.take(&offer);
                rest -= capacities[offer.slot];
                (least, most) = (least.saturating_sub(1), most - 1);
                added.push(self.slice(index, &offer));
            }
        }
        Some(added)
    }

    fn slice(&self, index: usize, offer: &Offer) -> Slice {
        let hardware = &self.ground.hardware;
        let demand = Demand {
            models: &self.problem.models,
            table: &self.ground.table,
            slots: hardware.slots.len(),
            only: &[],
            buying: Buying::Whole,
            wants: &[],
        };
        let latency_share = self.problem.rules.latency_share;
        let terms = Terms { demand, hardware, prices: &[], latency_share };
        let mut replicas = alone(&terms, index, offer.slot);
        for replica in &mut replicas {
            replica.model = self.short[index].model;
        }
        let kind = &hardware.slots[offer.slot].kind.name;
        Slice { gpu: offer.gpu, kind, position: offer.position, replicas }
    }
}

//! What is expected, what is planned for it, and when a plan is due.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    Memory, ModelTerms, PinOrder, PlaceMemory, World,
    asked::AskedReplica,
    demands::Load,
    sites::{Sites, Spot},
};
use crate::{
    demand::{Forecast, Why},
    fleet::GpuId,
    moment::Moment,
    place::{
        self, Decision, Gpu, Placed, Replica, Slice, Snapshot, State, Target, held_rps, place,
        wanted_back,
    },
    plan,
};

/// The part of what replicas serve that does not depend on their neighbours.
const SURE: f64 = 0.9;
/// Changes of a rate that are not worth a plan, as a part of it.
const SAME: f64 = 0.005;

#[derive(Clone, Debug)]
pub struct Plan {
    pub at: Moment,
    pub snapshot: Arc<Snapshot>,
    pub gpus: Vec<GpuId>,
    /// What shall be, and how to get there.
    pub decision: Decision,
    /// Lent slices without which some model does not get what it is to have.
    pub(super) back: Vec<(usize, mig::Position)>,
}

/// A replica of the last target, with names in place of numbers.
#[derive(Clone, Debug)]
pub(super) struct Aimed {
    gpu: GpuId,
    model: String,
    placed: Placed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    rps: f64,
    replicas: u32,
}

impl Plan {
    pub(super) fn new(at: Moment, snapshot: Snapshot, sites: &Sites) -> Self {
        let decision = place(&snapshot);
        let back = wanted_back(&snapshot, &decision.refusals);
        let gpus = sites.all.iter().map(|site| site.id.clone()).collect();
        Self { at, snapshot: Arc::new(snapshot), gpus, decision, back }
    }
}

/// What would be planned in `world` by a planner that remembers `memory`, whether due or not.
pub fn foresee(world: &World, memory: &Memory) -> Plan {
    let mut place = memory.place.clone();
    place.meet(world);
    let sites = Sites::new(world, &place.cuts);
    let replicas = place.replicas(world, &sites);
    let (snapshot, _) = place.snapshot(world, &sites, &replicas);
    Plan::new(world.now, snapshot, &sites)
}

/// The fleet of `world` and a pin on it by numbers; nothing if its model or a GPU of it is not there.
pub fn foreseen_pin(
    world: &World,
    memory: &Memory,
    pin: &PinOrder,
) -> Option<(Snapshot, place::Pin)> {
    let mut place = memory.place.clone();
    place.meet(world);
    let sites = Sites::new(world, &place.cuts);
    let replicas = place.replicas(world, &sites);
    let (snapshot, _) = place.snapshot(world, &sites, &replicas);
    Some((snapshot, super::orders::by_number(pin, world, &sites)?))
}

impl PlaceMemory {
    /// The fleet and what is asked of it, as values.
    pub(super) fn snapshot(
        &mut self,
        world: &World,
        sites: &Sites,
        replicas: &BTreeMap<u64, AskedReplica>,
    ) -> (Snapshot, Vec<Forecast>) {
        let now = world.now;
        let moving = replicas.values().any(|one| one.replica.state != State::Ready);
        let rests = |since: Moment| now.since(since) >= world.rules.calm;
        let calm = !moving && rests(self.moved_at) && rests(self.looked_at);
        let slice = |spot: &Spot| Slice {
            position: spot.position,
            loaned: spot.lent,
            doomed: spot.doomed,
            replicas: Vec::new(),
        };
        let gpu = |site: &super::sites::Site| Gpu {
            kind: site.kind,
            healthy: site.open,
            cuttable: site.cuttable,
            slices: site.spots.iter().map(slice).collect(),
        };
        let mut gpus: Vec<Gpu> = sites.all.iter().map(gpu).collect();
        for one in replicas.values() {
            gpus[one.site].slices[one.spot].replicas.push(one.replica);
        }
        let last = self.last_target(world, sites);
        let mut ready = vec![Ready::default(); world.models.len()];
        for one in &last.placed {
            let exists = one.replica.and_then(|id| replicas.get(&id));
            if exists.is_some_and(|one| one.replica.state == State::Ready) {
                ready[one.model].rps += one.serves_rps;
                ready[one.model].replicas += 1;
            }
        }
        let pins = super::orders::pins(world, sites);
        let (models, rules) = (self.models(&world.models), world.rules.plan);
        let mut snapshot = Snapshot { models, gpus, rules, pins, consolidate: calm, last };
        let forecasts = self.forecast(world, &mut snapshot, &ready);
        (snapshot, forecasts)
    }

    pub fn models(&self, models: &[ModelTerms]) -> Vec<plan::Model> {
        let model = |(index, model): (usize, &ModelTerms)| plan::Model {
            name: model.name.clone(),
            demand_rps: 0.0,
            slo_ms: model.slo.as_secs_f64() * 1e3,
            measured: self.speeds.of(model),
            max_batch: Some(model.max_batch),
            memory_mib: model.memory_mib,
            replicas_min: model.replicas_min,
            replicas_max: model.replicas_max,
            load: model.load,
            home: model.home,
            slowdown: self.neighbours.slowdown(index),
        };
        models.iter().enumerate().map(model).collect()
    }

    fn forecast(
        &mut self,
        world: &World,
        snapshot: &mut Snapshot,
        ready: &[Ready],
    ) -> Vec<Forecast> {
        self.demands.keep(&world.models);
        // What is lent comes back only after its notice.
        let lent = snapshot.gpus.iter().flat_map(|gpu| &gpu.slices).any(|slice| slice.loaned);
        let loans = world.rules.loans.as_ref().filter(|_| lent);
        let notice = loans.map_or(Duration::ZERO, |loans| loans.notice);
        let held_rps = held_rps(snapshot);
        let mut forecasts = Vec::with_capacity(world.models.len());
        for (index, model) in world.models.iter().enumerate() {
            if let Some(traffic) = world.traffic.get(&model.name) {
                self.demands.observe(model, traffic, &world.rules, world.now);
            }
            if world.unloaded.contains(&model.name) {
                let planned = &mut snapshot.models[index];
                (planned.demand_rps, planned.replicas_min) = (0.0, 0);
                forecasts.push(Forecast { rate_rps: 0.0, floor_rps: 0.0, why: Why::Idle });
                continue;
            }
            // What an unmeasured model is provided with is no rate.
            let is_measured = !snapshot.models[index].measured.is_empty();
            let provided_rps = if is_measured { ready[index].rps } else { 0.0 };
            let forecast = self.demands.forecast(&model.name, provided_rps, notice, world.now);
            let asleep = model.replicas_min == 0 && forecast.why == Why::Idle;
            let load = load_of(snapshot, index);
            let planned = &mut snapshot.models[index];
            planned.demand_rps = forecast.rate_rps;
            planned.replicas_min = if asleep { 0 } else { model.replicas_min.max(1) };
            if !is_measured && !asleep {
                let replicas = self.demands.replicas(model, load, forecast.why, world.now);
                planned.replicas_min = planned.replicas_min.max(replicas);
            } else if forecast.why == Why::New {
                // What is there stays, and nothing is added. What it can serve changes with its
                // neighbors and with every measurement, so the demand is set by what is known now: a
                // demand of what it could serve before would call for one more replica.
                let stay = ready[index].replicas.min(planned.replicas_max);
                planned.replicas_min = planned.replicas_min.max(stay);
                planned.demand_rps = SURE * forecast.rate_rps.min(held_rps[index]);
            }
            forecasts.push(forecast);
        }
        forecasts
    }

    /// Whether the plan in force was made from something else, or is not yet carried out.
    pub(super) fn is_due(&self, snapshot: &Snapshot) -> bool {
        let Some(plan) = &self.plan else { return true };
        let unsettled =
            plan.decision.now().next().is_some() || plan.decision.target != plan.snapshot.last;
        unsettled || snapshot.consolidate || differs(&plan.snapshot, snapshot)
    }

    /// The last target, as far as its GPUs and models are still there.
    pub(super) fn last_target(&self, world: &World, sites: &Sites) -> Target {
        let there = |Aimed { gpu, model, placed }: &Aimed| {
            let (gpu, index) = (sites.site(gpu)?, world.model(model)?);
            let site = &sites.all[gpu];
            let spot = site.spots.iter().find(|spot| spot.position == placed.position);
            // What it was to start has been asked for since.
            let started = || {
                let slice = site.slice(spot?);
                let mut asked = self.asked.get(&slice.worker)?.iter();
                let one = asked.find(|one| one.slice == slice && one.model == *model)?;
                (!one.leaving).then_some(one.replica)
            };
            let replica = placed.replica.or_else(started);
            let vanishes = replica.is_none() && spot.is_some_and(|spot| spot.doomed);
            (!vanishes).then(|| Placed { gpu, model: index, replica, ..placed.clone() })
        };
        let placed = self.target.iter().filter_map(there).collect();
        Target { placed, leaving: self.leaving.clone() }
    }

    /// The GPU on which a replica of `model` is to be.
    pub(super) fn aimed(&self, model: &str) -> Option<&GpuId> {
        let aimed = self.target.iter().find(|aimed| aimed.model == model);
        aimed.map(|aimed| &aimed.gpu)
    }

    /// Remembers a plan that was made now; what it was made from is returned.
    pub(super) fn remember(&mut self, world: &World, plan: Plan) -> Arc<Snapshot> {
        let named = |placed: &Placed| Aimed {
            gpu: plan.gpus[placed.gpu].clone(),
            model: world.models[placed.model].name.clone(),
            placed: placed.clone(),
        };
        self.target = plan.decision.target.placed.iter().map(named).collect();
        self.leaving = plan.decision.target.leaving.clone();
        if plan.snapshot.consolidate {
            self.looked_at = world.now;
        }
        let snapshot = Arc::clone(&plan.snapshot);
        self.plan = Some(Arc::new(plan));
        snapshot
    }
}

fn load_of(snapshot: &Snapshot, model: usize) -> Load {
    let slices = snapshot.gpus.iter().flat_map(|gpu| &gpu.slices);
    let mine = slices.flat_map(|slice| &slice.replicas).filter(|one| one.model == Some(model));
    let (mut load, mut busy) = (Load::default(), 0.0);
    for one in mine.filter(|one| one.current) {
        load.there += u32::from(matches!(one.state, State::Starting | State::Ready));
        if one.state == State::Ready {
            load.ready += 1;
            busy += one.busy;
        }
    }
    load.busy = busy / f64::from(load.ready.max(1));
    load
}

/// Whether another plan may be made from `now` than was from `then`.
fn differs(then: &Snapshot, now: &Snapshot) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= SAME * a.abs();
    let same_model = |(a, b): (&plan::Model, &plan::Model)| {
        let moved = plan::Model { demand_rps: a.demand_rps, slowdown: a.slowdown, ..b.clone() };
        near(a.demand_rps, b.demand_rps) && near(a.slowdown, b.slowdown) && moved == *a
    };
    let models = then.models.len() == now.models.len()
        && then.models.iter().zip(&now.models).all(same_model);
    let gpus = then.gpus.len() == now.gpus.len() && then.gpus.iter().zip(&now.gpus).all(same_gpu);
    !models || !gpus || then.rules != now.rules || then.pins != now.pins
}

fn same_gpu((a, b): (&Gpu, &Gpu)) -> bool {
    let of = |gpu: &Gpu| (std::ptr::from_ref(gpu.kind), gpu.healthy, gpu.cuttable);
    let same_slice = |(a, b): (&Slice, &Slice)| {
        // How busy a replica is changes all the time, and decides only between equals.
        let idle = |replica: &Replica| Replica { busy: 0.0, ..*replica };
        (a.position, a.loaned, a.doomed) == (b.position, b.loaned, b.doomed)
            && a.replicas.iter().map(idle).eq(b.replicas.iter().map(idle))
    };
    of(a) == of(b)
        && a.slices.len() == b.slices.len()
        && a.slices.iter().zip(&b.slices).all(same_slice)
}

//! One control round: from what is seen of the fleet to what it shall be.
//!
//! [`decide`] reads a [`World`] and what earlier rounds have learned, and says what to change:
//! replicas, cuts, jobs. The caller makes the changed jobs durable; [`desired`] then derives what
//! each worker is told from what was committed, so that nothing is told that could be forgotten.
//! Placement claims slices first and loans are offered the rest, so no slice has two owners. A slice
//! that a job gives back is free for others in the round after the one that says so: until that is
//! committed the job still has it.
//!
//! Settling jobs and lending happen in every round. Planning is dear and has a due time of its own:
//! see [`World::rested`].

mod absence;
mod asked;
mod demands;
mod desired;
mod lendable;
mod lending;
mod memory;
mod neighbours;
mod orders;
mod planning;
mod renewal;
mod settling;
mod sites;
mod speeds;
pub mod throttle;
mod turnover;
mod world;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

pub use self::{
    asked::AskedProcess,
    demands::KeptDemand,
    desired::{AskedRank, Assignment, GpuAssignment, SliceAssignment, desired},
    lendable::{Lendable, profile_memory_mib},
    lending::{Needs, Want, admission},
    memory::{LoanMemory, Memory, PlaceMemory},
    orders::{OrderProgress, PinProgress},
    planning::{Plan, foresee, foreseen_pin},
    speeds::KeptSpeeds,
    turnover::Event,
    world::{
        Edition, LoanTerms, ModelTerms, PinOrder, ReplicaPhase, RoundRules, SeenGpu, SeenRank,
        SeenReplica, SeenSlice, SeenWorker, TenantTerms, TrainingJob, World,
    },
};

use crate::{
    demand::{Forecast, Why},
    fleet::{Absent, Advice, ReplicaId},
    job::{Counts, Life},
};

use self::{settling::Settled, sites::Sites};

pub const TICK: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Round {
    /// By worker and GPU, how it shall be cut; absent, it stays as it is.
    pub cuts: BTreeMap<String, BTreeMap<u32, Option<Vec<String>>>>,
    pub admit: Vec<ReplicaId>,
    pub drain: Vec<ReplicaId>,
    /// Jobs that change; to be made durable before anything is told.
    pub jobs: Vec<JobChange>,
    /// What happened to loans, once the jobs are durable.
    pub counts: Counts,
    pub waits: BTreeMap<u64, Waits>,
    /// What clients of models without replicas are answered, by model.
    pub advice: BTreeMap<String, Advice>,
    /// Pins whose models have left the slice they were to leave.
    pub moved_pins: Vec<PinOrder>,
    pub progress: OrderProgress,
    pub forecasts: Vec<Forecast>,
    pub plan: Option<Arc<Plan>>,
    pub planned: bool,
    /// Whether another is due that the planner was too tired to make.
    pub plan_due: bool,
    /// The median error of predicted slowdowns; none before the first.
    pub interference_error: Option<f64>,
    pub needs: Needs,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct JobChange {
    pub id: u64,
    pub before: Life,
    pub after: Life,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    pub why: String,
    pub may_start_ms: Option<u64>,
}

impl Round {
    pub fn reclaims(&self) -> bool {
        !self.needs.wanted.is_empty()
    }
}

pub fn decide(world: &World, memory: &Memory) -> (Round, Memory) {
    let Memory { mut place, mut loans } = memory.clone();
    place.meet(world);
    let mut sites = Sites::new(world, &place.cuts);
    place.neighbours.look(world);
    let mut replicas = place.replicas(world, &sites);
    renewal::mark(world, &sites, &mut replicas, &place);
    place.neighbours.learn(world, &sites, &replicas);
    place.time_loads(world, &replicas);
    let (snapshot, forecasts) = place.snapshot(world, &sites, &replicas);
    let moved_pins = orders::moved(world, &sites, &replicas);
    let due = place.is_due(&snapshot);
    let planned = due && world.rested;
    let mut turn = turnover::Turn::default();
    let snapshot = if planned {
        let plan = Plan::new(world.now, snapshot, &sites);
        place.take_steps(world, &plan, &mut sites, &mut turn);
        place.remember(world, plan)
    } else {
        Arc::new(snapshot)
    };
    place.admit(world, &replicas, &mut turn);
    place.drain(world, &mut turn);
    let target = place.last_target(world, &sites);
    place.cut_for_jobs(world, (&mut sites, &snapshot), &target, &mut turn.events);
    let needs = lending::needs(world, &place, &sites, &forecasts);
    let settled = Settled::new(world, &mut loans);
    let served = place.served(&sites);
    let lent = loans.lend(world, settled, &needs, &served);
    let progress = place.progress(world, &sites, &replicas, &snapshot);
    let is_current = planned || !due;
    let failures = place.unplaced(world, &sites, is_current, &mut turn.events);
    let advice = place.advise(world, &forecasts, &failures);
    let round = Round {
        cuts: sites.cuts(),
        admit: turn.admit,
        drain: turn.drain,
        events: turn.events,
        jobs: lent.changes,
        counts: lent.counts,
        waits: lent.waits,
        advice,
        moved_pins,
        progress,
        forecasts,
        plan: place.plan.clone(),
        planned,
        plan_due: due && !planned,
        interference_error: place.neighbours.median_error(),
        needs,
    };
    (round, Memory { place, loans })
}

impl PlaceMemory {
    /// What clients of each model are answered while it has no replica.
    fn advise(
        &self,
        world: &World,
        forecasts: &[Forecast],
        failures: &BTreeMap<String, String>,
    ) -> BTreeMap<String, Advice> {
        let advice = |(model, forecast): (&ModelTerms, &Forecast)| {
            let loads_in = self.demands.load_time(&model.name);
            let asleep = model.replicas_min == 0 && forecast.why == Why::Idle;
            let absent = match failures.get(&model.name) {
                Some(why) => Absent::Unplaced { why: why.clone() },
                None if asleep => Absent::Asleep,
                None => Absent::Loading(self.wait(world, &model.name)),
            };
            (model.name.clone(), Advice { absent, loads_in: Some(loads_in) })
        };
        world.models.iter().zip(forecasts).map(advice).collect()
    }

    /// Models that have no room anywhere, and why; each is said once. A plan of another fleet than that
    /// of now proves nothing.
    fn unplaced(
        &mut self,
        world: &World,
        sites: &Sites,
        is_current: bool,
        events: &mut Vec<Event>,
    ) -> BTreeMap<String, String> {
        let mut failures = BTreeMap::new();
        // Without a GPU there is no worker yet, which is no lack of room.
        let Some(plan) = self.plan.clone().filter(|_| !sites.all.is_empty()) else {
            return failures;
        };
        // A worker that is drained, or about to go, may come back.
        let is_final = is_current && sites.all.iter().all(|site| site.open);
        let mut unplaced = BTreeSet::new();
        for refusal in &plan.decision.refusals {
            let Some(index) = refusal.model else { continue };
            let name = &plan.snapshot.models[index].name;
            if !world.models.iter().any(|model| model.name == *name) {
                continue;
            }
            let why = refusal.why.clone();
            if unplaced.insert(name.clone()) && !self.unplaced.contains(name) {
                events.push(Event::Unplaced { model: name.clone(), why: why.clone() });
            }
            let somewhere = plan.decision.target.placed.iter().any(|one| one.model == index);
            if is_final && !somewhere {
                failures.entry(name.clone()).or_insert(why);
            }
        }
        self.unplaced = unplaced;
        failures
    }
}

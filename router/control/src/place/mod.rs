//! Place: the loop that tells workers what there shall be.
//!
//! Each round reads what the workers report, what the configuration asks and what the models'
//! dispatchers count, asks [`policy::place`], does what can be done at once, and sends each worker a
//! new generation if anything differs from the last. What the loop remembers is what it has asked
//! for and what it has learned; started anew, it takes the former from the first reports and the
//! latter from the state directory.

pub mod afar;
mod assigned;
mod carry;
mod demand;
mod fits;
mod foresight;
mod groups;
mod lessons;
mod loans;
mod memory;
mod neighbours;
mod ordered;
mod outlook;
mod spec;
mod told;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};

use config::Config;
use policy::{
    demand::{Forecast, Why},
    fleet::{Absent, Advice, Traffic},
    interference::Draw,
    moment::Moment,
    place::{
        Decision, Gpu, Leaving, Placed, Slice, Snapshot, State, Target, held_rps, place,
        wanted_back,
    },
    plan,
};
use tokio::time::{Instant, sleep, timeout};

use self::{
    assigned::{Assignment, found},
    demand::Demands,
    groups::Group,
    lessons::Lessons,
    memory::Notebook,
    neighbours::Neighbours,
    world::{GpuKey, World},
};
pub use self::{
    fits::fits,
    ordered::{DrainPhase, DrainState, PinPhase, PinState},
    outlook::{Affected, Consequence, Intended, Outlook, Prospect, Provided},
    told::{Move, Moved, PlanState, Planned, PlannedModel, PlannedReplica, Told},
};
use crate::{control::Control, fleet::Seen};

/// How often the loop looks when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// The least time between two rounds, so that many changes at once are one.
const REST: Duration = Duration::from_millis(5);

/// Rounds take at most about this part of the time: after one that planned for long, the next waits.
const LEISURE: u32 = 10;

/// How long nothing must have moved before fewer GPUs are looked for, and how often that is done.
const CALM: Duration = Duration::from_secs(60);

/// How much is searched for a plan; about a tenth of a second.
const WORK: u64 = 400_000;

/// The part of what replicas serve that does not depend on their neighbours.
const SURE: f64 = 0.9;

/// What a model has that is ready.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    rps: f64,
    replicas: u32,
}

/// What the loop remembers.
#[derive(Debug, Default)]
struct Placer {
    /// The term of the leader that decides.
    term: u64,
    assignments: BTreeMap<String, Assignment>,
    generation: u64,
    groups_given: u64,
    /// How GPUs shall be cut, where the router decided it.
    cuts: BTreeMap<GpuKey, Vec<String>>,
    demands: Demands,
    lessons: Lessons,
    neighbours: Neighbours,
    /// When each replica that is not ready yet was asked for.
    awaited: HashMap<u64, Moment>,
    /// The last target, with names in place of numbers.
    target: Vec<(GpuKey, String, Placed)>,
    leaving: Vec<Leaving>,
    moved_at: Moment,
    looked_at: Moment,
    unplaced: BTreeSet<String>,
    /// Whether inference waits for slices that are lent.
    calls_back: bool,
}

/// Places until the router ends, and says in `planned` what it decides.
pub async fn run(control: Weak<Control>, planned: Arc<Planned>) {
    let mut notebook = Notebook::default();
    let mut placer: Option<Placer> = None;
    while let Some(control) = control.upgrade() {
        let standing = Arc::clone(control.leadership());
        let mut news = standing.news();
        let Some(term) = standing.acts() else {
            drop(control);
            // Whether there is news or not, the next round looks.
            let _ = timeout(TICK, news.changed()).await;
            continue;
        };
        let placer = match &mut placer {
            Some(placer) if placer.term == term => placer,
            one => {
                let placer = one.insert(Placer { term, ..Placer::default() });
                notebook.recall(&control, placer).await;
                placer
            }
        };
        let fleet = Arc::clone(control.fleet());
        let (mut heard, mut linked) = (fleet.changed(), control.plane().changed());
        let began = Instant::now();
        placer.round(&control, &planned).await;
        notebook.note(&control, placer).await;
        drop(control);
        let took = began.elapsed();
        let news = async {
            tokio::select! {
                _ = heard.changed() => {}
                _ = linked.changed() => {}
            }
        };
        // Whether something changed or time passed, the next round looks.
        let _ = timeout(TICK, news).await;
        // Slices that are called back must hear of it, and be taken when they come.
        let leisure = if placer.calls_back { 1 } else { LEISURE };
        sleep(REST.max(took * leisure)).await;
    }
}

impl Placer {
    async fn round(&mut self, control: &Control, planned: &Planned) {
        if !control.ledger().lock().is_settled() {
            return;
        }
        let now = control.clock().now();
        let config = control.config();
        let plane = &**control.plane();
        let (seen, links, traffic) = (control.look(), plane.replicas(), plane.traffic());
        let standing = control.orders().standing();
        self.meet(&seen);
        let mut world = World::new(&seen, &self.cuts, &control.ledger().lock());
        self.neighbours.look(&seen, now);
        let groups = self.groups(&config, (&seen, &links), &mut world);
        self.neighbours.learn((&config, &traffic), (&world, &groups), now);
        self.time_loads(&groups, &config, now);
        let (mut snapshot, forecasts) =
            self.snapshot((control, &traffic), &config, &world, &groups, now);
        snapshot.pins = ordered::pins(&standing, &world, &config);
        let left = ordered::left(&standing, (&world, &groups), &config);
        let looked = snapshot.consolidate;
        let (snapshot, decision, back) = decide(snapshot).await;
        if looked {
            self.looked_at = now;
        }
        let decided = (&*config, &snapshot, &decision);
        let ordered = {
            // What a job has been given meanwhile is not taken from it.
            let mut owners = control.ledger().lock();
            self.carry_out(&decision, &config, (&mut world, &groups), (control, &owners));
            self.remember(&decision, &world, &config);
            self.cut_for_jobs(control, &config, (&mut world, &snapshot), &decision.target);
            let losing = |model: usize| {
                let hurried = matches!(forecasts[model].why, Why::Late | Why::Queue | Why::Panic);
                hurried || self.demands.is_losing(&config.models[model].name)
            };
            let needs = loans::needs(&decision, &back, (&world, &snapshot), losing);
            self.calls_back = !needs.wanted.is_empty();
            owners.serve(self.served(&world), needs);
            for worker in &seen {
                self.send(worker, &world, &owners, control.fleet());
            }
            self.ordered(&standing, (&world, &groups), decided, &owners)
        };
        // Without a GPU there is no worker yet, which is no want of room.
        if !world.sites.is_empty() {
            self.complain(&decision, (&config, &world), control);
        }
        let error = self.neighbours.median_error();
        let told = Told { config: &config, world: &world, forecasts: &forecasts, error, at: now };
        planned.record(&told, (snapshot, ordered), &decision);
        ordered::note_left(control.orders(), left).await;
    }

    /// Begins with what a worker says it has, and forgets those that are gone.
    fn meet(&mut self, seen: &[Seen]) {
        self.assignments.retain(|name, _| seen.iter().any(|seen| seen.worker == *name));
        self.cuts.retain(|(name, _), _| seen.iter().any(|seen| seen.worker == *name));
        for Seen { worker, report, .. } in seen {
            self.generation = self.generation.max(report.generation);
            self.lessons.learn(report);
            let groups = &mut self.groups_given;
            self.assignments
                .entry(worker.clone())
                .or_insert_with(|| Assignment { replicas: found(report, groups), sent: None });
        }
    }

    /// Learns how long it takes from asking for a replica until it is ready.
    fn time_loads(&mut self, groups: &BTreeMap<u64, Group>, config: &Config, now: Moment) {
        self.awaited.retain(|id, _| groups.contains_key(id));
        for (id, Group { replica, .. }) in groups {
            match replica.state {
                State::Starting => {
                    self.awaited.entry(*id).or_insert(now);
                }
                State::Ready => {
                    if let (Some(since), Some(model)) = (self.awaited.remove(id), replica.model) {
                        self.demands.loaded(&config.models[model].name, now.since(since));
                    }
                }
                State::Draining | State::Failed => {}
            }
        }
    }

    /// The fleet and what is asked of it, as values.
    #[expect(clippy::too_many_arguments, reason = "all that a decision is made from")]
    fn snapshot(
        &mut self,
        (control, traffic): (&Control, &BTreeMap<String, Traffic>),
        config: &Config,
        world: &World,
        groups: &BTreeMap<u64, Group>,
        now: Moment,
    ) -> (Snapshot, Vec<Forecast>) {
        let moving = groups.values().any(|group| group.replica.state != State::Ready);
        let calm = !moving && now.since(self.moved_at) >= CALM && now.since(self.looked_at) >= CALM;
        let mut gpus: Vec<Gpu> = world
            .sites
            .iter()
            .map(|site| {
                let slice = |spot: &world::Spot| Slice {
                    position: spot.position,
                    loaned: spot.lent,
                    doomed: spot.doomed,
                    replicas: Vec::new(),
                };
                let slices = site.slices.iter().map(slice).collect();
                Gpu { kind: site.kind, healthy: site.open, cuttable: site.cuttable, slices }
            })
            .collect();
        for group in groups.values() {
            gpus[group.site].slices[group.slice].replicas.push(group.replica);
        }
        let rules = plan::Rules { work: WORK, ..config.planner.rules };
        let last = self.last_target(world, config);
        let mut ready = vec![Ready::default(); config.models.len()];
        for one in &last.placed {
            let exists = one.replica.and_then(|id| groups.get(&id));
            if exists.is_some_and(|group| group.replica.state == State::Ready) {
                ready[one.model].rps += one.serves_rps;
                ready[one.model].replicas += 1;
            }
        }
        let models = self.models(config);
        let mut snapshot =
            Snapshot { models, gpus, rules, pins: Vec::new(), consolidate: calm, last };
        let forecasts = self.forecast((control, traffic), config, (&mut snapshot, &ready), now);
        (snapshot, forecasts)
    }

    /// The models, without a demand yet.
    fn models(&self, config: &Config) -> Vec<plan::Model> {
        let model = |(index, model): (usize, &config::Model)| plan::Model {
            name: model.name.clone(),
            demand_rps: 0.0,
            slo_ms: model.slo.as_secs_f64() * 1e3,
            measured: self.lessons.of(model),
            max_batch: Some(model.max_batch),
            memory_mib: Some(model.memory_mib),
            replicas_min: model.replicas.min,
            replicas_max: model.replicas.max,
            load: Draw::default(),
            slowdown: self.neighbours.slowdown(index),
        };
        config.models.iter().enumerate().map(model).collect()
    }

    /// Sets what is to be provided for.
    fn forecast(
        &mut self,
        (control, traffic): (&Control, &BTreeMap<String, Traffic>),
        config: &Config,
        (snapshot, ready): (&mut Snapshot, &[Ready]),
        now: Moment,
    ) -> Vec<Forecast> {
        self.demands.keep(|name| config.models.iter().any(|model| model.name == name));
        // What is lent comes back only after its notice.
        let lent = snapshot.gpus.iter().flat_map(|gpu| &gpu.slices).any(|slice| slice.loaned);
        let notice = config.loans.as_ref().filter(|_| lent).map_or(Duration::ZERO, |it| it.notice);
        let held_rps = held_rps(snapshot);
        let mut forecasts = Vec::with_capacity(config.models.len());
        for (index, model) in config.models.iter().enumerate() {
            if let Some(traffic) = traffic.get(&model.name) {
                let others = control.leadership().peers().load(&model.name);
                self.demands.observe(model, (traffic, others), (&config.planner, now));
            }
            let forecast = self.demands.forecast(&model.name, ready[index].rps, notice, now);
            let asleep = model.replicas.min == 0 && forecast.why == Why::Idle;
            let absent = if asleep { Absent::Asleep } else { Absent::Loading };
            let loads_in = Some(self.demands.load_time(&model.name));
            control.plane().advise(&model.name, Advice { absent, loads_in });
            let planned = &mut snapshot.models[index];
            planned.demand_rps = forecast.rate_rps;
            planned.replicas_min = if asleep { 0 } else { model.replicas.min.max(1) };
            if forecast.why == Why::New {
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

    /// The last target, as far as its GPUs and models are still there.
    fn last_target(&self, world: &World, config: &Config) -> Target {
        let there = |(key, name, placed): &(GpuKey, String, Placed)| {
            let gpu = world.site(&key.0, key.1)?;
            let model = config.models.iter().position(|model| model.name == *name)?;
            Some(Placed { gpu, model, ..placed.clone() })
        };
        let placed = self.target.iter().filter_map(there).collect();
        Target { placed, leaving: self.leaving.clone() }
    }

    fn remember(&mut self, decision: &Decision, world: &World, config: &Config) {
        let named = |placed: &Placed| {
            let key = world.sites[placed.gpu].key.clone();
            (key, config.models[placed.model].name.clone(), placed.clone())
        };
        self.target = decision.target.placed.iter().map(named).collect();
        self.leaving = decision.target.leaving.clone();
    }
}

/// What a decision was made from, the decision, and the lent slices it would need.
type Decided = (Snapshot, Decision, Vec<(usize, mig::Position)>);

/// Decides beside what is served, since a plan may take a while.
async fn decide(snapshot: Snapshot) -> Decided {
    let decided = tokio::task::spawn_blocking(move || {
        let decision = place(&snapshot);
        let back = wanted_back(&snapshot, &decision.refusals);
        (snapshot, decision, back)
    });
    match decided.await {
        Ok(decided) => decided,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

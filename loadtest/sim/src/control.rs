//! Simulated workers under the router's own control round.
//!
//! Each round reads the fleet with [`SimWorkers::world`], decides with [`policy::round::decide`],
//! commits the jobs, derives with [`policy::round::desired`] what each worker is told, and has
//! [`SimWorkers::apply`] do it: cutting a GPU, loading a model and starting a job take their time. After
//! every round the claims are checked that must hold whatever is decided: no slice has two owners,
//! gangs are whole, and the service that jobs attained is the service that slices gave.

mod claims;
mod training;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use mig::Kind;
use policy::{
    demand::{Day, Habit},
    fleet::{Link, ReplicaId, SliceId, Traffic},
    moment::Moment,
    plan::{Model as PlannedModel, Problem},
    round::{
        Assignment, Edition, GpuAssignment, KeptDemand, LoanTerms, Memory, ModelTerms, Needs,
        ReplicaPhase, Round, RoundRules, SeenGpu, SeenReplica, SeenSlice, SeenWorker, TenantTerms,
        Want, World, decide, desired, profile_memory_mib,
    },
};
use simgpu::Delays;

pub use self::training::Trained;
use self::training::Trainee;
use crate::{fleet::SimFleet, study::Study, training::Habits};

/// Rounds in one interval at most: cut, start, admit, drain, and what follows.
const TURNS: u32 = 8;
/// How often a plan with fewer GPUs is looked for.
const CALM: Duration = Duration::from_secs(300);
/// The clock begins some days after 1970, so that what is recalled lies before it.
const EPOCH_S: u64 = 10 * 86_400;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{claim}, {at_s} s after the start")]
pub struct Violated {
    pub at_s: u64,
    pub claim: String,
}

#[derive(Clone, Copy, Debug)]
pub struct Serving {
    /// Its model, by index.
    pub model: usize,
    pub kind: &'static Kind,
    pub profile: &'static str,
    pub processes: u32,
    /// Processes on the slice, its own among them.
    pub sharers: u32,
    pub part: f64,
}

/// Workers of one GPU each, and what the rounds remember.
#[derive(Debug)]
pub struct SimWorkers {
    world: World,
    memory: Memory,
    delays: Delays,
    habits: Habits,
    /// By model, what loading it takes.
    loads: Vec<Duration>,
    warm_at: BTreeMap<ReplicaId, Moment>,
    /// By worker, when its last cut is done.
    cut_until: Vec<Moment>,
    told: BTreeMap<String, Assignment>,
    trainees: BTreeMap<u64, Trainee>,
    trained: Vec<Trained>,
    /// What each job was given, in GPU-seconds.
    given: BTreeMap<u64, f64>,
    settled: Moment,
}

/// The moment `seconds` after a run began.
pub fn moment(seconds: f64) -> Moment {
    Moment::default() + Duration::from_secs(EPOCH_S) + Duration::from_secs_f64(seconds)
}

impl SimWorkers {
    /// GPUs that are not cut yet, whose models were asked for `before_rps` until now.
    pub fn new(study: &Study, fleet: &SimFleet, problem: &Problem, before_rps: &[f64]) -> Self {
        let extra = study.training.as_ref().map_or(0, |training| training.gpus);
        let first = study.gpus.first().map(|gpus| gpus.kind);
        let kinds = study
            .gpus
            .iter()
            .flat_map(|gpus| std::iter::repeat_n(gpus.kind, gpus.count as usize))
            .chain(first.into_iter().flat_map(|kind| std::iter::repeat_n(kind, extra as usize)));
        let workers: Vec<SeenWorker> = (0..).zip(kinds).map(worker).collect();
        let now = moment(0.0);
        let mut memory = Memory::new(now, BTreeMap::new());
        for (model, rate) in problem.models.iter().zip(before_rps) {
            let habit = Habit { minutes: vec![*rate], usual: Vec::new() };
            let kept = KeptDemand { habit, load_time: None };
            let day = Day { now, of_day: Duration::ZERO };
            memory.place.recall_demand(&model.name, kept, Duration::ZERO, day);
        }
        let (tenants, trainees) = training::jobs(study.training.as_ref());
        let models = terms(study, fleet, problem);
        let traffic = Traffic { rows_per_request: 1.0, ..Traffic::default() };
        let world = World {
            now,
            rested: true,
            traffic: models.iter().map(|model| (model.name.clone(), traffic.clone())).collect(),
            models: Arc::from(models),
            links: BTreeMap::new(),
            jobs: Vec::new(),
            tenants,
            drained: BTreeSet::new(),
            unloaded: BTreeSet::new(),
            pins: Vec::new(),
            rules: rules(study, problem),
            workers,
        };
        let load = |model: &crate::fleet::SimModel| fleet.terms.delays.load(model.memory_mib);
        Self {
            cut_until: vec![now; world.workers.len()],
            world,
            memory,
            delays: fleet.terms.delays,
            habits: study.training.as_ref().map_or_else(Habits::default, |one| one.habits()),
            loads: fleet.models.iter().map(load).collect(),
            warm_at: BTreeMap::new(),
            told: BTreeMap::new(),
            trainees,
            trained: Vec::new(),
            given: BTreeMap::new(),
            settled: now,
        }
    }

    pub fn world(&self, now: Moment) -> World {
        World { now, ..self.world.clone() }
    }

    /// `came` requests of a model, of which `late` were late.
    pub fn ask(&mut self, model: usize, came: u64, late: u64) {
        let name = &self.world.models[model].name;
        if let Some(traffic) = self.world.traffic.get_mut(name) {
            traffic.arrived += came;
            traffic.eligible += came;
            traffic.late += late;
            traffic.within += came - late;
        }
    }

    /// Rounds at `now`, until one changes nothing; what they did.
    pub fn rounds(&mut self, now: Moment) -> Result<Vec<Round>, Violated> {
        self.train(now);
        let mut rounds = Vec::new();
        for _ in 0..TURNS {
            self.connect(now);
            let world = self.world(now);
            let (round, memory) = decide(&world, &self.memory);
            self.account(now);
            self.memory = memory;
            self.commit(&round, now);
            let told = desired(&round, &self.memory, &self.world.jobs);
            let news = told != self.told || !round.admit.is_empty() || !round.drain.is_empty();
            self.told = told;
            self.apply(&round, now);
            let check = claims::check(&self.world.jobs, &self.told, &self.given);
            check.map_err(|claim| Violated { at_s: now.since(moment(0.0)).as_secs(), claim })?;
            let done = !news && round.jobs.is_empty();
            rounds.push(round);
            if done {
                break;
            }
        }
        Ok(rounds)
    }

    pub fn apply(&mut self, round: &Round, now: Moment) {
        for id in &round.admit {
            self.world.links.insert(id.clone(), Link::InRotation { busy: false });
        }
        for id in &round.drain {
            self.world.links.insert(id.clone(), Link::Draining { busy: false });
        }
        let models = Arc::clone(&self.world.models);
        for (index, worker) in self.world.workers.iter_mut().enumerate() {
            let Some(told) = self.told.get(&worker.name) else { continue };
            for (gpu, told) in worker.gpus.iter_mut().zip(&told.gpus) {
                let takes = reshape(gpu, told, &self.delays);
                let until = &mut self.cut_until[index];
                *until = if takes.is_zero() { *until } else { (*until).max(now) + takes };
                for slice in &mut gpu.slices {
                    let wanted = told.slices.iter().find(|one| one.position == slice.position);
                    let asked = wanted.map(|one| one.replicas.as_slice()).unwrap_or_default();
                    slice.replicas.retain(|one| asked.iter().any(|asked| asked.id == one.id));
                    for one in asked {
                        if slice.replicas.iter().any(|there| there.id == one.id) {
                            continue;
                        }
                        let model = models.iter().position(|model| model.name == one.model);
                        let load = model.map_or(Duration::ZERO, |model| self.loads[model]);
                        let id = ReplicaId { worker: worker.name.clone(), replica: one.id };
                        self.warm_at.insert(id, (*until).max(now) + load);
                        slice.replicas.push(SeenReplica {
                            id: one.id,
                            model: one.model.clone(),
                            process: one.process,
                            digest: one.digest,
                            serves: one.serves,
                            aged: false,
                            phase: ReplicaPhase::Starting,
                            warmup: Vec::new(),
                        });
                    }
                }
            }
        }
        self.forget_gone();
        self.run_ranks(now);
    }

    /// Nothing is on its way any longer.
    pub fn all_warm(&mut self) {
        self.warm_at.values_mut().for_each(|at| *at = Moment::default());
    }

    fn connect(&mut self, now: Moment) {
        for (id, _) in self.warm_at.iter().filter(|(_, at)| **at <= now) {
            self.world.links.entry(id.clone()).or_insert(Link::Connected);
        }
    }

    fn forget_gone(&mut self) {
        let mut there = BTreeSet::new();
        for worker in &self.world.workers {
            let slices = worker.gpus.iter().flat_map(|gpu| &gpu.slices);
            there.extend(
                slices
                    .flat_map(|slice| &slice.replicas)
                    .map(|one| ReplicaId { worker: worker.name.clone(), replica: one.id }),
            );
        }
        self.warm_at.retain(|id, _| there.contains(id));
        self.world.links.retain(|id, _| there.contains(id));
    }

    pub fn serving(&self) -> Vec<Serving> {
        let mut serving = Vec::new();
        for worker in &self.world.workers {
            for gpu in &worker.gpus {
                let Some(kind) = gpu.kind else { continue };
                for slice in &gpu.slices {
                    serving.extend(self.on_slice(&worker.name, kind, slice));
                }
            }
        }
        serving
    }

    fn on_slice(&self, worker: &str, kind: &'static Kind, slice: &SeenSlice) -> Vec<Serving> {
        let sharers = u32::try_from(slice.replicas.len()).unwrap_or(u32::MAX);
        let Ok(profile) = kind.profile(&slice.profile) else { return Vec::new() };
        let serves = |one: &&SeenReplica| {
            let id = ReplicaId { worker: worker.to_owned(), replica: one.id };
            matches!(self.world.links.get(&id), Some(Link::InRotation { .. }))
        };
        let mut by_model: BTreeMap<usize, u32> = BTreeMap::new();
        for one in slice.replicas.iter().filter(serves) {
            let model = self.world.models.iter().position(|model| model.name == one.model);
            *by_model.entry(model.unwrap_or(usize::MAX)).or_default() += 1;
        }
        let compute = f64::from(profile.compute_slices) / f64::from(kind.compute_slices);
        let of = |(model, processes): (usize, u32)| Serving {
            model,
            kind,
            profile: profile.name.as_str(),
            processes,
            sharers,
            part: compute * f64::from(processes) / f64::from(sharers),
        };
        by_model.into_iter().map(of).collect()
    }

    /// GPUs with at least one replica.
    pub fn gpus_used(&self) -> usize {
        let used = |gpu: &&SeenGpu| gpu.slices.iter().any(|slice| !slice.replicas.is_empty());
        self.world.workers.iter().flat_map(|worker| &worker.gpus).filter(used).count()
    }

    /// GPUs that inference waits for: lent slices, by their part of a GPU's compute.
    pub fn short_gpus(&self, needs: &Needs) -> f64 {
        let part = |slice: &SliceId| {
            let worker = self.world.workers.iter().find(|worker| worker.name == slice.worker)?;
            let kind = worker.gpus.first()?.kind?;
            let profile = kind.position(&slice.position).ok()?.profile();
            Some(f64::from(profile.compute_slices) / f64::from(kind.compute_slices))
        };
        let of = |want: &Want| {
            want.slices.iter().filter_map(part).take(want.count as usize).sum::<f64>()
        };
        needs.wanted.iter().map(of).sum()
    }

    pub fn gpus(&self) -> usize {
        self.world.workers.len()
    }

    /// Replicas that were asked for, whether they serve or not.
    pub fn replicas(&self) -> usize {
        let asked = self.memory.place.asked().values().flatten();
        asked.map(|one| one.replica).collect::<BTreeSet<u64>>().len()
    }
}

fn worker((index, kind): (usize, &'static Kind)) -> SeenWorker {
    let gpu = SeenGpu {
        index: 0,
        kind: Some(kind),
        readable: true,
        can_reshape: true,
        pinned: None,
        memory_mib: None,
        slices: Vec::new(),
    };
    // Named in the order of their numbers.
    SeenWorker { name: format!("w{index:06}"), leaving: false, lends: true, gpus: vec![gpu] }
}

fn terms(study: &Study, fleet: &SimFleet, problem: &Problem) -> Vec<ModelTerms> {
    let edition = Edition { digest: 1, without_max_batch: 1, without_content: 1, max_batch: 1 };
    let kinds = study.gpus.iter().map(|gpus| gpus.kind);
    let profiles = kinds.flat_map(|kind| &kind.profiles).map(|profile| profile.name.clone());
    let editions: BTreeMap<String, Edition> = profiles.map(|name| (name, edition)).collect();
    let model = |(model, served): (&PlannedModel, &crate::fleet::SimModel)| ModelTerms {
        name: model.name.clone(),
        slo: served.settings.objective,
        slo_target: served.target,
        max_batch: model.max_batch.unwrap_or(u32::MAX),
        memory_mib: model.memory_mib,
        replicas_min: model.replicas_min,
        replicas_max: model.replicas_max,
        measured: model.measured.clone(),
        load: model.load,
        home: model.home,
        editions: editions.clone(),
    };
    problem.models.iter().zip(&fleet.models).map(model).collect()
}

fn rules(study: &Study, problem: &Problem) -> RoundRules {
    let demand = policy::demand::Rule::default();
    let lends = |training: &crate::study::Training| {
        let rules = training.rules();
        LoanTerms {
            order: training.order.to_owned(),
            fair_tenants: training.tenants_even,
            loaning: training.loans,
            lease: rules.lease,
            notice: rules.notice,
            cuts: true,
        }
    };
    RoundRules {
        plan: problem.rules,
        patience: demand.patience,
        history: demand.history,
        idle: demand.idle,
        calm: CALM,
        loans: study.training.as_ref().map(lends),
    }
}

/// Cuts a GPU as told, where nothing is on what must go; the time it takes.
fn reshape(gpu: &mut SeenGpu, told: &GpuAssignment, delays: &Delays) -> Duration {
    let (Some(positions), Some(kind)) = (&told.positions, gpu.kind) else { return Duration::ZERO };
    let stays = |slice: &SeenSlice| {
        positions.contains(&slice.position) || !slice.replicas.is_empty() || slice.rank.is_some()
    };
    let before = gpu.slices.len();
    gpu.slices.retain(stays);
    let mut takes = delays.destroy * u32::try_from(before - gpu.slices.len()).unwrap_or(0);
    for text in positions {
        let Ok(position) = kind.position(text) else { continue };
        let clear = |slice: &SeenSlice| {
            kind.position(&slice.position).is_ok_and(|other| !other.overlaps(position))
        };
        if gpu.slices.iter().all(clear) {
            takes += delays.create;
            gpu.slices.push(SeenSlice {
                label: mig::slice_label(0, position),
                position: text.clone(),
                profile: position.profile().name.clone(),
                usable: true,
                memory_mib: Some(profile_memory_mib(position.profile())),
                processes: 0,
                busy_us: 0,
                replicas: Vec::new(),
                rank: None,
            });
        }
    }
    takes
}

pub(crate) fn nobody() -> TenantTerms {
    TenantTerms { name: String::new(), share: 1.0, quota: u32::MAX }
}

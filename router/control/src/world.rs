//! Reading everything that decides into [`policy::round::World`].

pub(crate) mod spec;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use config::Config;
use policy::{
    fleet::{Home, Traffic},
    interference::Draw,
    job,
    loan::Ask,
    moment::Moment,
    plan::{Measured, Row},
    round::{
        Edition, LoanTerms, ModelTerms, PinOrder, ReplicaPhase, RoundRules, SeenGpu, SeenRank,
        SeenReplica, SeenSlice, SeenWorker, TenantTerms, TrainingJob, World,
    },
};
use protocol::{
    GpuReport, LaneReport, ModelSpec, RankEnd, RankReport, RankState, ReplicaReport, ReplicaState,
    SliceReport, WarmPoint,
};

use crate::{
    control::Control,
    fleet::Seen,
    jobs::{JobRecord, JobSpec, profile_compute},
    leader::Load,
    orders::Pin,
};

const MIB: u64 = 1 << 20;
/// How much is searched for a plan; about a tenth of a second.
pub(crate) const WORK: u64 = 400_000;
/// How long nothing must have moved before fewer GPUs are looked for, and how often that is done.
const CALM: Duration = Duration::from_secs(60);

/// The models in force, how each is loaded, and what workers reported beside the world.
#[derive(Debug, Default)]
pub(crate) struct Revisions {
    config: Option<Arc<Config>>,
    profiles: BTreeSet<String>,
    models: Arc<[ModelTerms]>,
    /// By digest.
    specs: HashMap<u64, ModelSpec>,
    generation: u64,
    addresses: HashMap<String, IpAddr>,
    generations: BTreeMap<String, u64>,
}

impl Revisions {
    fn update(&mut self, config: &Arc<Config>, seen: &[Seen]) {
        let mut profiles = BTreeSet::new();
        for gpu in seen.iter().flat_map(|seen| &seen.report.gpus) {
            profiles.extend(gpu.slices.iter().map(|slice| slice.profile.clone()));
            let kind = gpu.kind.as_deref().and_then(|kind| mig::device(kind).ok());
            let named = kind.into_iter().flat_map(|kind| &kind.profiles);
            profiles.extend(named.map(|profile| profile.name.clone()));
        }
        let generations = seen.iter().map(|one| (one.worker.clone(), one.report.generation));
        self.generations = generations.collect();
        let highest = self.generations.values().copied().max().unwrap_or(0);
        self.generation = self.generation.max(highest);
        let address = |one: &Seen| Some((one.worker.clone(), one.report.address?));
        self.addresses = seen.iter().filter_map(address).collect();
        let same = self.config.as_ref().is_some_and(|known| Arc::ptr_eq(known, config));
        if same && self.profiles.is_superset(&profiles) {
            return;
        }
        self.profiles.extend(profiles);
        let models: Vec<ModelTerms> = config
            .models
            .iter()
            .map(|model| {
                let mut terms = model_terms(model);
                for profile in &self.profiles {
                    let spec = spec::of(model, profile);
                    let digest = spec.digest();
                    let max_batch = spec.max_batch;
                    let without = ModelSpec { max_batch: 0, ..spec.clone() }.digest();
                    let unknown = ModelSpec { content: None, ..spec.clone() };
                    let edition = Edition {
                        digest,
                        without_max_batch: without,
                        without_content: unknown.digest(),
                        max_batch,
                    };
                    terms.editions.insert(profile.clone(), edition);
                    self.specs.insert(digest, spec);
                }
                terms
            })
            .collect();
        self.models = Arc::from(models);
        self.config = Some(Arc::clone(config));
    }

    /// Forgets how models were loaded of which nothing was asked for, nor will be.
    pub(crate) fn keep(&mut self, asked: impl Iterator<Item = u64>) {
        let editions = self.models.iter().flat_map(|model| model.editions.values());
        let used: BTreeSet<u64> = editions.map(|edition| edition.digest).chain(asked).collect();
        self.specs.retain(|digest, _| used.contains(digest));
    }

    pub(crate) fn spec(&self, digest: u64) -> Option<&ModelSpec> {
        self.specs.get(&digest)
    }

    pub(crate) fn address(&self, worker: &str) -> Option<IpAddr> {
        self.addresses.get(worker).copied()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn generation_of(&self, worker: &str) -> Option<u64> {
        self.generations.get(worker).copied()
    }
}

/// The world as it is now; whether the planner has `rested` is the round's to say.
pub(crate) fn read(control: &Control, revisions: &mut Revisions, rested: bool) -> World {
    let config = control.config();
    let seen = control.fleet().look();
    revisions.update(&config, &seen);
    let orders = control.orders().standing();
    let mut traffic = control.plane().traffic();
    for (model, mine) in &mut traffic {
        *mine = together(mine, control.leadership().peers().load(model));
    }
    let records = control.jobs().unfinished();
    let has_gpus = has_gpus(&seen);
    World {
        now: control.clock().now(),
        rested,
        models: Arc::clone(&revisions.models),
        traffic,
        workers: seen.iter().map(worker).collect(),
        links: control.plane().replicas(),
        jobs: records.iter().map(|record| training_job(&config, record, has_gpus)).collect(),
        tenants: tenants(&config),
        drained: orders.drains.keys().cloned().collect(),
        unloaded: orders.unloads.keys().cloned().collect(),
        pins: orders.pins.iter().map(pin_order).collect(),
        rules: rules(&config),
    }
}

pub(crate) fn pin_order(pin: &Pin) -> PinOrder {
    let Pin { model, at, from, by, .. } = pin.clone();
    PinOrder { model, at, from, by }
}

pub(crate) fn loan_times(config: &Config) -> (Duration, Duration) {
    let defaults = policy::loan::Rules::default();
    let loans = config.loans.as_ref();
    loans.map_or((defaults.notice, defaults.lease), |loans| (loans.notice, loans.lease))
}

fn together(mine: &Traffic, others: Load) -> Traffic {
    let Load { arrived, late, eligible, within, waiting } = Load::from(mine).with(others);
    Traffic { arrived, late, eligible, within, waiting, ..mine.clone() }
}

fn rules(config: &Config) -> RoundRules {
    let loans = config.loans.as_ref().map(|loans| LoanTerms {
        order: loans.order.to_owned(),
        fair_tenants: loans.fair_tenants,
        loaning: loans.rule,
        lease: loans.lease,
        notice: loans.notice,
        cuts: !loans.allow.is_empty(),
    });
    RoundRules {
        plan: policy::plan::Rules { work: WORK, ..config.planner.rules },
        patience: config.planner.patience,
        history: config.planner.history,
        idle: config.planner.idle,
        calm: CALM,
        loans,
    }
}

/// A model of the configuration, without how it is loaded.
pub(crate) fn model_terms(model: &config::Model) -> ModelTerms {
    let rows = model.profile.iter().flat_map(|profile| profile.rows()).map(|row| Row {
        profile: row.profile.clone(),
        batch: row.batch,
        processes: row.processes,
        // Where the file's two numbers disagree, its time is what executors and deadlines go by.
        throughput_rps: 1e3 * f64::from(row.batch * row.processes) / row.batch_ms(),
    });
    let rows: Vec<Row> = rows.collect();
    let measured = if rows.is_empty() { Vec::new() } else { vec![Measured { kind: None, rows }] };
    ModelTerms {
        name: model.name.clone(),
        slo: model.slo,
        slo_target: model.slo_target,
        max_batch: model.max_batch,
        memory_mib: Some(model.memory_mib),
        replicas_min: model.replicas.min,
        replicas_max: model.replicas.max.unwrap_or(u32::MAX),
        measured,
        load: Draw::default(),
        home: home(model),
        editions: BTreeMap::new(),
    }
}

/// Where a model runs best: an ONNX model on cores, unless it is to be on a GPU, and a profile was
/// measured on GPUs.
fn home(model: &config::Model) -> Home {
    match &model.engine {
        config::Engine::Onnx { .. } if model.device == config::Device::Gpu => Home::Gpus,
        config::Engine::Onnx { .. } => Home::Cores,
        config::Engine::Server(_) | config::Engine::Synthetic { .. } => Home::Gpus,
    }
}

/// Those who submit jobs; the last is for jobs of nobody.
fn tenants(config: &Config) -> Vec<TenantTerms> {
    let quota = config.loans.as_ref().and_then(|loans| loans.tenant_slices).unwrap_or(u32::MAX);
    let tenant = |name: &str, share| TenantTerms { name: name.to_owned(), share, quota };
    let named = config.tenants.iter().map(|one| tenant(&one.name, one.share));
    named.chain([tenant("", 1.0)]).collect()
}

/// Whether the fleet has a GPU, so that jobs which name no profile are not for cores.
pub(crate) fn has_gpus(seen: &[Seen]) -> bool {
    let mut gpus = seen.iter().flat_map(|seen| &seen.report.gpus);
    let is_cores = |name: &String| mig::device(name).is_ok_and(mig::Kind::is_cores);
    gpus.any(|gpu| !gpu.kind.as_ref().is_some_and(is_cores))
}

pub(crate) fn training_job(config: &Config, record: &JobRecord, has_gpus: bool) -> TrainingJob {
    TrainingJob {
        id: record.id,
        ask: ask(config, &record.spec, has_gpus),
        profile: record.spec.profile.clone(),
        retries: record.spec.retries,
        submitted_ms: record.submitted_ms,
        life: record.life.clone(),
    }
}

fn ask(config: &Config, spec: &JobSpec, has_gpus: bool) -> Ask {
    let cores = spec.profile.as_deref().map(|profile| mig::cores_of(profile).is_some());
    let named = spec.tenant.as_ref();
    let tenant = named.and_then(|name| config.tenants.iter().position(|one| one.name == *name));
    Ask {
        tenant: tenant.unwrap_or(config.tenants.len()),
        least: spec.slices_min,
        most: spec.slices_max,
        compute: spec.profile.as_deref().and_then(profile_compute).unwrap_or(1),
        memory_mib: spec.memory_mib,
        home: match cores {
            Some(true) => Home::Cores,
            Some(false) => Home::Gpus,
            None if has_gpus => Home::Gpus,
            None => Home::Any,
        },
        takes: spec.takes_s.map(Duration::from_secs),
        deadline: spec.deadline_ms.map(|ms| Moment::from_micros(ms.saturating_mul(1000))),
    }
}

fn worker(seen: &Seen) -> SeenWorker {
    SeenWorker {
        name: seen.worker.clone(),
        leaving: seen.report.leaving,
        lends: seen.report.lends,
        gpus: seen.report.gpus.iter().map(gpu).collect(),
    }
}

fn gpu(report: &GpuReport) -> SeenGpu {
    SeenGpu {
        index: report.index,
        kind: report.kind.as_deref().and_then(|kind| mig::device(kind).ok()),
        readable: report.mode.is_some(),
        can_reshape: report.can_reshape,
        pinned: report.pinned.clone(),
        memory_mib: report.memory_bytes.map(|(all, _)| all / MIB),
        slices: report.slices.iter().map(slice).collect(),
    }
}

fn slice(report: &SliceReport) -> SeenSlice {
    SeenSlice {
        label: report.slice.clone(),
        position: report.position.clone(),
        profile: report.profile.clone(),
        usable: report.uuid.is_some(),
        memory_mib: report.memory_bytes.map(|bytes| bytes / MIB),
        processes: u32::try_from(report.lanes.len()).unwrap_or(u32::MAX),
        busy_us: report.lanes.iter().map(|lane| lane.busy_us).sum(),
        replicas: report.replicas.iter().map(|one| replica(one, &report.lanes)).collect(),
        rank: report.rank.as_ref().map(|one| SeenRank { job: one.job, rank: rank(one) }),
    }
}

fn replica(report: &ReplicaReport, lanes: &[LaneReport]) -> SeenReplica {
    let (phase, warmup) = match &report.state {
        ReplicaState::Starting | ReplicaState::Loading | ReplicaState::Warming { .. } => {
            (ReplicaPhase::Starting, Vec::new())
        }
        ReplicaState::Ready(ready) => (ReplicaPhase::Ready, middles(&ready.warmup)),
        ReplicaState::Draining => (ReplicaPhase::Draining, Vec::new()),
        ReplicaState::Failed { .. } => (ReplicaPhase::Failed, Vec::new()),
    };
    SeenReplica {
        id: report.replica,
        model: report.model.clone(),
        process: report.lane,
        digest: report.digest,
        serves: report.serves,
        aged: lanes.iter().any(|lane| lane.lane == report.lane && lane.aged),
        phase,
        warmup,
    }
}

/// The middle time of each size that was warmed, in seconds.
fn middles(warmup: &[WarmPoint]) -> Vec<(u32, f64)> {
    let middle = |point: &WarmPoint| {
        let mut times = point.compute_us.clone();
        times.sort_unstable();
        let micros = *times.get(times.len() / 2)?;
        Some((point.batch, micros.max(1) as f64 / 1e6))
    };
    warmup.iter().filter_map(middle).collect()
}

fn rank(report: &RankReport) -> job::Rank {
    let progress = report.progress.map(|told| job::RankProgress {
        step: told.step,
        steps: told.steps,
        checkpoint: told.checkpoint,
        checkpoint_age_ms: told.checkpoint_age_ms,
    });
    let state = match &report.state {
        RankState::Starting => job::RankState::Starting,
        RankState::Running { .. } => job::RankState::Running,
        RankState::Checkpointing => job::RankState::Checkpointing,
        RankState::Stopping => job::RankState::Stopping,
        RankState::Ended(end) => job::RankState::Ended(match end.clone() {
            RankEnd::Exited { code } => job::RankEnd::Exited { code },
            RankEnd::Killed { signal, overdue } => job::RankEnd::Killed { signal, overdue },
            RankEnd::Exceeded { what } => job::RankEnd::Exceeded { what },
            RankEnd::Expired => job::RankEnd::Expired,
            RankEnd::Lost { reason } => job::RankEnd::Lost { reason },
        }),
    };
    job::Rank { run: report.run, state, progress, said: report.said.clone() }
}

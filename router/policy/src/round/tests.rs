//! Rounds on a small fleet that does at once what it is told.

mod claims;
mod renewal;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::*;
use crate::{
    fleet::{GpuId, Link, ReplicaId, SliceId, Traffic},
    interference::Draw,
    job::{Life, Rank, RankEnd, RankState},
    loan::{Ask, Loaning},
    moment::Moment,
    plan::{self, Measured, Row},
};

/// When the fleet begins, since 1970.
pub(super) const BEGIN_MS: u64 = 1_700_000_000_000;
const KIND: &str = "A100-80GB";

/// A fleet of one GPU per worker, its jobs and what rounds remember.
pub(super) struct Bench {
    pub(super) now_ms: u64,
    pub(super) world: World,
    pub(super) memory: Memory,
    pub(super) commits: bool,
    pub(super) told: BTreeMap<String, Assignment>,
    pub(super) last: Option<Round>,
}

pub(super) fn model(name: &str) -> ModelTerms {
    let kind = mig::kind(KIND).unwrap();
    let row = |profile: &mig::Profile| Row {
        profile: profile.name.clone(),
        batch: 4,
        processes: 1,
        throughput_rps: 100.0 * f64::from(profile.compute_slices),
    };
    let profiles = || kind.profiles.iter().filter(|profile| !profile.media);
    ModelTerms {
        name: name.to_owned(),
        slo: Duration::from_millis(200),
        slo_target: 0.99,
        max_batch: 4,
        memory_mib: Some(1_000),
        replicas_min: 1,
        replicas_max: 6,
        measured: vec![Measured { kind: None, rows: profiles().map(row).collect() }],
        load: Draw::default(),
        home: Default::default(),
        editions: profiles().map(|profile| (profile.name.clone(), edition(1))).collect(),
    }
}

pub(super) fn edition(digest: u64) -> Edition {
    Edition { digest, without_max_batch: digest, without_content: digest, max_batch: 4 }
}

pub(super) fn job(id: u64, least: u32, most: u32, now_ms: u64) -> TrainingJob {
    let ask = Ask {
        tenant: 0,
        least,
        most,
        compute: 1,
        memory_mib: 1_000,
        home: Default::default(),
        takes: None,
        deadline: None,
    };
    let life = Life::new(now_ms);
    TrainingJob { id, ask, profile: None, retries: 1, submitted_ms: now_ms, life }
}

impl Bench {
    pub(super) fn new(workers: usize, models: &[&str]) -> Self {
        let gpu = SeenGpu {
            index: 0,
            kind: Some(mig::kind(KIND).unwrap()),
            readable: true,
            can_reshape: true,
            pinned: None,
            memory_mib: None,
            slices: Vec::new(),
        };
        let worker = |index: usize| SeenWorker {
            name: format!("w{index}"),
            leaving: false,
            lends: true,
            gpus: vec![gpu.clone()],
        };
        let loans = LoanTerms {
            order: "las".to_owned(),
            fair_tenants: true,
            loaning: Loaning::Sluice,
            lease: Duration::from_secs(30),
            notice: Duration::from_secs(2),
            cuts: true,
        };
        let rules = RoundRules {
            plan: plan::Rules { work: 2_000, ..plan::Rules::default() },
            patience: Duration::from_secs(5),
            history: Duration::from_secs(60),
            idle: Duration::from_secs(600),
            calm: Duration::from_secs(60),
            loans: Some(loans),
        };
        let now = Moment::from_micros(BEGIN_MS * 1000);
        let world = World {
            now,
            rested: true,
            models: models.iter().map(|name| model(name)).collect(),
            traffic: models.iter().map(|name| ((*name).to_owned(), Traffic::default())).collect(),
            workers: (0..workers).map(worker).collect(),
            links: BTreeMap::new(),
            jobs: Vec::new(),
            tenants: vec![TenantTerms { name: String::new(), share: 1.0, quota: u32::MAX }],
            drained: BTreeSet::new(),
            unloaded: BTreeSet::new(),
            pins: Vec::new(),
            rules,
        };
        Self {
            now_ms: BEGIN_MS,
            world,
            memory: Memory::new(now, BTreeMap::new()),
            commits: true,
            told: BTreeMap::new(),
            last: None,
        }
    }

    pub(super) fn change_model(&mut self, index: usize, change: impl Fn(&mut ModelTerms)) {
        let mut models = self.world.models.to_vec();
        change(&mut models[index]);
        self.world.models = Arc::from(models);
    }

    /// `requests` of a model come and `late` of them are late.
    pub(super) fn ask(&mut self, model: &str, requests: u64, late: u64) {
        let traffic = self.world.traffic.get_mut(model).unwrap();
        traffic.arrived += requests;
        traffic.eligible += requests;
        traffic.late += late;
        traffic.within += requests - late;
    }

    /// One round, what was decided done, and `ms` gone.
    pub(super) fn round(&mut self, ms: u64) -> Round {
        self.world.now = Moment::from_micros(self.now_ms * 1000);
        let (round, next) = decide(&self.world, &self.memory);
        if self.commits {
            for change in &round.jobs {
                let known = self.world.jobs.iter_mut().find(|job| job.id == change.id).unwrap();
                assert_eq!(known.life, change.before);
                known.life = change.after.clone();
            }
            self.memory = next;
        } else {
            self.memory.place = next.place;
        }
        self.world.jobs.retain(|job| !job.life.state.is_over());
        self.told = desired(&round, &self.memory, &self.world.jobs);
        self.obey(&round);
        self.now_ms += ms;
        self.last = Some(round.clone());
        round
    }

    /// Rounds until no replica starts or leaves.
    pub(super) fn settle(&mut self) {
        for _ in 0..30 {
            self.round(1_000);
        }
    }

    fn obey(&mut self, round: &Round) {
        for id in &round.admit {
            self.world.links.insert(id.clone(), Link::InRotation { busy: false });
        }
        for id in &round.drain {
            self.world.links.insert(id.clone(), Link::Draining { busy: false });
        }
        for worker in &mut self.world.workers {
            let Some(told) = self.told.get(&worker.name) else { continue };
            for (gpu, told) in worker.gpus.iter_mut().zip(&told.gpus) {
                reshape(gpu, told);
                for slice in &mut gpu.slices {
                    let wanted = told.slices.iter().find(|one| one.position == slice.position);
                    load(&worker.name, slice, wanted, &mut self.world.links);
                    run(slice, wanted.and_then(|one| one.rank.as_ref()));
                }
            }
        }
        let workers = &self.world.workers;
        self.world.links.retain(|id, _| {
            let mine = workers.iter().filter(|worker| worker.name == id.worker);
            let slices = mine.flat_map(|worker| &worker.gpus).flat_map(|gpu| &gpu.slices);
            slices.flat_map(|slice| &slice.replicas).any(|one| one.id == id.replica)
        });
    }

    pub(super) fn life(&self, id: u64) -> &Life {
        &self.world.jobs.iter().find(|job| job.id == id).unwrap().life
    }

    pub(super) fn serving(&self, model: &str) -> usize {
        let gpus = self.world.workers.iter().flat_map(|worker| &worker.gpus);
        let slices = gpus.flat_map(|gpu| &gpu.slices);
        slices.flat_map(|slice| &slice.replicas).filter(|one| one.model == model).count()
    }
}

/// Cuts a GPU as told, where nothing is on what must go.
fn reshape(gpu: &mut SeenGpu, told: &GpuAssignment) {
    let Some(positions) = &told.positions else { return };
    let stays = |slice: &SeenSlice| !slice.replicas.is_empty() || slice.rank.is_some();
    gpu.slices.retain(|slice| positions.contains(&slice.position) || stays(slice));
    let kind = gpu.kind.unwrap();
    for text in positions {
        let position = kind.position(text).unwrap();
        let clear = |slice: &SeenSlice| !kind.position(&slice.position).unwrap().overlaps(position);
        if gpu.slices.iter().all(clear) {
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
}

/// Loads what shall be on a slice and drops what shall not.
fn load(
    worker: &str,
    slice: &mut SeenSlice,
    wanted: Option<&SliceAssignment>,
    links: &mut BTreeMap<ReplicaId, Link>,
) {
    let asked = wanted.map(|one| one.replicas.as_slice()).unwrap_or_default();
    slice.replicas.retain(|one| asked.iter().any(|asked| asked.id == one.id));
    for one in asked {
        if slice.replicas.iter().all(|there| there.id != one.id) {
            assert!(slice.rank.is_none(), "a rank is there still");
            slice.replicas.push(SeenReplica {
                id: one.id,
                model: one.model.clone(),
                process: one.process,
                digest: one.digest,
                serves: one.serves,
                aged: false,
                phase: ReplicaPhase::Ready,
                warmup: Vec::new(),
            });
            let id = ReplicaId { worker: worker.to_owned(), replica: one.id };
            links.insert(id, Link::Connected);
        }
    }
}

/// Runs the rank that shall be on a slice; one that shall not be is gone.
fn run(slice: &mut SeenSlice, wanted: Option<&AskedRank>) {
    let Some(wanted) = wanted else {
        slice.rank = None;
        return;
    };
    let state = if wanted.stop_notice_ms.is_some() {
        RankState::Ended(RankEnd::Exited { code: 143 })
    } else {
        RankState::Running
    };
    let rank = Rank { run: wanted.run, state, progress: None, said: None };
    slice.rank = Some(SeenRank { job: wanted.job, rank });
}

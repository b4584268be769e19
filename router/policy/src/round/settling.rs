//! What became of jobs since the last round.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    LoanMemory, SeenRank, TrainingJob, World,
    lendable::{Lendable, whole_ms},
    throttle::{Attainment, Running},
};
use crate::{
    fleet::{GpuId, SliceId},
    job::{Counts, RankSeen, State, Terms, settle},
};

/// Given to a rank beyond its loan and its notice before it is taken to have ended unseen.
const SLACK: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Settled {
    pub(super) jobs: Vec<TrainingJob>,
    pub(super) over: Vec<TrainingJob>,
    pub(super) counts: Counts,
    /// Jobs that must give their slices back: pausing them does not help inference.
    pub(super) evicted: BTreeSet<u64>,
    pub(super) elapsed: Duration,
}

impl Settled {
    /// Takes in what workers report of ranks and how models fare beside them.
    pub(super) fn new(world: &World, loans: &mut LoanMemory) -> Self {
        let elapsed = world.now.since(loans.settled);
        loans.settled = world.now;
        let mut settled = Self {
            jobs: Vec::new(),
            over: Vec::new(),
            counts: Counts::default(),
            evicted: BTreeSet::new(),
            elapsed,
        };
        if world.jobs.is_empty() {
            return settled;
        }
        let lendable = Lendable::new(world, &world.jobs, &BTreeSet::new());
        let reports = reported(world);
        let held: BTreeSet<&SliceId> = world.jobs.iter().flat_map(|job| &job.life.seats).collect();
        loans.heard.retain(|slice, _| held.contains(slice));
        let (notice, lease) = world.terms();
        let patience = lease + notice + SLACK;
        for job in &world.jobs {
            let mut job = job.clone();
            let observed: Vec<RankSeen> = job
                .life
                .seats
                .iter()
                .map(|slice| loans.observe((job.id, slice), &reports, patience, world))
                .collect();
            let terms = Terms {
                notice_ms: whole_ms(notice),
                now_ms: world.now_ms(),
                elapsed_s: elapsed.as_secs_f64(),
                retries: job.retries,
            };
            let (mut life, counts) = settle(&job.life, &observed, &terms);
            if life.run != job.life.run {
                life.gpus = lendable.gpus(&life.seats);
            }
            if life.state == State::Done {
                loans.history.add(life.attained_gpu_s);
            }
            settled.counts.add(counts);
            job.life = life;
            if job.life.state.is_over() { &mut settled.over } else { &mut settled.jobs }.push(job);
        }
        settled.evicted =
            loans.throttles.look(&attainments(world), &running(world, &settled.jobs), world.now);
        settled
    }
}

impl LoanMemory {
    /// What is seen of the rank of a job on a slice.
    fn observe(
        &mut self,
        (job, slice): (u64, &SliceId),
        reports: &BTreeMap<SliceId, Option<&SeenRank>>,
        patience: Duration,
        world: &World,
    ) -> RankSeen {
        let report = reports.get(slice);
        if report.is_some() {
            self.heard.insert(slice.clone(), world.now);
        }
        let heard = self.heard.get(slice).copied().unwrap_or(self.began);
        match report {
            Some(Some(seen)) if seen.job == job => RankSeen::Reported(seen.rank.clone()),
            Some(_) => RankSeen::Unknown,
            None if world.now.since(heard) > patience => RankSeen::Gone,
            None => RankSeen::Unknown,
        }
    }
}

/// The slices that are reported, and the rank on each.
fn reported(world: &World) -> BTreeMap<SliceId, Option<&SeenRank>> {
    let mut reports = BTreeMap::new();
    for worker in &world.workers {
        for gpu in &worker.gpus {
            let id = GpuId { worker: worker.name.clone(), gpu: gpu.index };
            for slice in gpu.slices.iter().filter(|slice| slice.usable) {
                reports.insert(id.slice(slice.position.clone()), slice.rank.as_ref());
            }
        }
    }
    reports
}

fn attainments(world: &World) -> BTreeMap<String, Attainment> {
    let of = |model: &super::ModelTerms| {
        let traffic = world.traffic.get(&model.name)?;
        let (eligible, within) = (traffic.eligible, traffic.within);
        let allowed = 1.0 - model.slo_target;
        Some((model.name.clone(), Attainment { eligible, within, allowed }))
    };
    world.models.iter().filter_map(of).collect()
}

/// The jobs that run, each with the models on its GPUs.
fn running<'a>(world: &'a World, jobs: &[TrainingJob]) -> Vec<Running<'a>> {
    let runs = jobs.iter().filter(|job| job.life.state == State::Running);
    let beside = |job: &TrainingJob| {
        let mut models = BTreeSet::new();
        for worker in &world.workers {
            for gpu in &worker.gpus {
                let mine = |slice: &SliceId| slice.worker == worker.name && slice.gpu == gpu.index;
                if job.life.seats.iter().any(mine) {
                    let replicas = gpu.slices.iter().flat_map(|slice| &slice.replicas);
                    models.extend(replicas.map(|replica| replica.model.as_str()));
                }
            }
        }
        models
    };
    runs.map(|job| Running { job: job.id, beside: beside(job) }).collect()
}

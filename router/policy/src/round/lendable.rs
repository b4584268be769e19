//! The slices that could be lent or are, and the jobs, as [`crate::loan`] sees them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mig::{Kind, Profile};

use super::{SeenGpu, SeenSlice, TrainingJob, Want, World};
use crate::{
    fleet::{GpuId, SliceId},
    loan::{Account, Held, Job, JobId, Phase, Slice, Tenant, Wanted, has_room, slice_speed},
    moment::Moment,
};

/// Compute slices of a GPU that is not in the MIG table.
const SEVENTHS: u8 = 7;
/// The notice where requests miss their objective until the slice is back.
pub(super) const URGENT: Duration = Duration::from_secs(1);

/// Every slice that could be lent or is, and where it is.
#[derive(Clone, Debug, Default)]
pub struct Lendable {
    pub(super) ids: Vec<SliceId>,
    pub(super) slices: Vec<Slice>,
}

/// A moment of the clock that records are dated by.
pub(super) fn moment(ms: u64) -> Moment {
    Moment::from_micros(ms.saturating_mul(1000))
}

/// The same in milliseconds.
pub(super) fn millis(moment: Moment) -> u64 {
    moment.micros() / 1000
}

/// A time in whole milliseconds.
pub(super) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub fn profile_memory_mib(profile: &Profile) -> u64 {
    (profile.memory_gib * 1024.0) as u64
}

impl Lendable {
    /// Those of workers that run jobs, where `jobs` are those of now and `served` is inference's.
    ///
    /// What a job of `world` has and no job of now does is on its way back.
    pub fn new(world: &World, jobs: &[TrainingJob], served: &BTreeSet<SliceId>) -> Self {
        let holders = holders(world, jobs);
        let mut lendable = Self::default();
        let mut gpus = 0;
        for (host, worker) in (0..).zip(&world.workers) {
            for gpu in &worker.gpus {
                let number = gpus;
                gpus += 1;
                if !worker.lends {
                    continue;
                }
                let id = GpuId { worker: worker.name.clone(), gpu: gpu.index };
                for slice in gpu.slices.iter().filter(|slice| slice.usable) {
                    let at = id.slice(slice.position.clone());
                    let held = match holders.get(&at) {
                        Some(held) => *held,
                        None if served.contains(&at) || !slice.replicas.is_empty() => {
                            Held::Inference
                        }
                        // Of a job that nobody knows, which the worker was told to end.
                        None if slice.rank.is_some() => Held::Leaving { by: world.now },
                        // What a worker that is to go has lent comes back, and nothing is added.
                        None if !world.is_open(worker) => Held::Inference,
                        None => Held::Free,
                    };
                    let base = measured(gpu, slice);
                    lendable.slices.push(Slice { host, gpu: number, held, ..base });
                    lendable.ids.push(at);
                }
            }
        }
        lendable
    }

    /// The slices there are, and those that could be cut for `job` where nobody has said how.
    pub fn with_cuttable(&self, world: &World, job: &TrainingJob) -> Vec<Slice> {
        let mut slices = self.slices.clone();
        let lends = world.workers.iter().filter(|worker| worker.lends && world.is_open(worker));
        for gpu in lends.flat_map(|worker| &worker.gpus) {
            let kind = gpu.kind.filter(|_| gpu.can_reshape && gpu.pinned.is_none());
            let Some((kind, profile)) = kind.and_then(|kind| Some((kind, profile(kind, job)?)))
            else {
                continue;
            };
            let suits = |slice: &&SeenSlice| {
                let at = kind.profile(&slice.profile);
                let size = at.map_or(0, |profile| profile.compute_slices);
                slice.usable && size >= profile.compute_slices
            };
            let there = gpu.slices.iter().filter(suits).count();
            let served = gpu.slices.iter().any(|slice| !slice.replicas.is_empty());
            let slice = Slice {
                host: 0,
                gpu: 0,
                compute: profile.compute_slices,
                share: f64::from(profile.compute_slices) / f64::from(kind.compute_slices.max(1)),
                speed: slice_speed(profile.compute_slices, kind.compute_slices),
                memory_mib: profile_memory_mib(profile),
                cores: kind.is_cores(),
                held: if served { Held::Inference } else { Held::Free },
            };
            let more = usize::from(profile.max_instances).saturating_sub(there);
            slices.extend(std::iter::repeat_n(slice, more));
        }
        slices
    }

    pub(super) fn withhold(&mut self, kept: impl Fn(&SliceId) -> bool) {
        for (id, slice) in self.ids.iter().zip(&mut self.slices) {
            if slice.held == Held::Free && kept(id) {
                slice.held = Held::Inference;
            }
        }
    }

    fn index(&self, slice: &SliceId) -> Option<usize> {
        self.ids.iter().position(|other| other == slice)
    }

    /// What `slices` are of a GPU, together.
    pub(super) fn gpus(&self, slices: &[SliceId]) -> f64 {
        let of = |slice: &SliceId| self.index(slice).map(|index| self.slices[index].share);
        slices.iter().filter_map(of).sum()
    }

    pub(super) fn wanted(&self, wants: &[Want], notice: Duration, now: Moment) -> Vec<Wanted> {
        let wanted = wants.iter().map(|want| {
            let by = now + if want.urgent { URGENT.min(notice) } else { notice };
            let slices = want.slices.iter().filter_map(|slice| self.index(slice)).collect();
            Wanted { slices, count: want.count, by }
        });
        wanted.collect()
    }
}

/// Who has each slice that a job has or had when the world was read.
fn holders<'a>(world: &'a World, jobs: &'a [TrainingJob]) -> BTreeMap<&'a SliceId, Held> {
    let before = world.jobs.iter().flat_map(|job| job.life.slices());
    let mut holders: BTreeMap<&SliceId, Held> =
        before.map(|slice| (slice, Held::Leaving { by: world.now })).collect();
    for TrainingJob { id, life, .. } in jobs {
        let id = JobId(*id);
        for slice in &life.seats {
            let stays = life.stop.as_ref().is_none_or(|stop| stop.seats.contains(slice));
            let by = life.stop.as_ref().map_or(world.now, |stop| moment(stop.by_ms));
            let held = if stays { Held::Lent(id) } else { Held::Leaving { by } };
            holders.insert(slice, held);
        }
        let coming = life.stop.iter().flat_map(|stop| &stop.seats);
        holders.extend(coming.map(|slice| (slice, Held::Lent(id))));
    }
    holders
}

/// What is cut for a job on GPUs of a kind: the profile it names, or the smallest with memory for it.
fn profile<'a>(kind: &'a Kind, job: &TrainingJob) -> Option<&'a Profile> {
    if !job.ask.home.suits(kind) {
        return None;
    }
    let fits = |profile: &&Profile| match &job.profile {
        Some(name) => profile.name == *name,
        None => !profile.media && has_room(profile_memory_mib(profile), job.ask.memory_mib),
    };
    kind.profiles.iter().filter(fits).min_by_key(|profile| profile.memory_slices)
}

fn measured(gpu: &SeenGpu, slice: &SeenSlice) -> Slice {
    let all = gpu.kind.map_or(SEVENTHS, |kind| kind.compute_slices);
    let position = gpu.kind.and_then(|kind| kind.position(&slice.position).ok());
    let compute = position.map_or(all, |position| position.profile().compute_slices);
    Slice {
        host: 0,
        gpu: 0,
        compute,
        share: f64::from(compute) / f64::from(all.max(1)),
        speed: slice_speed(compute, all),
        memory_mib: slice.memory_mib.unwrap_or(u64::MAX),
        cores: gpu.kind.is_some_and(Kind::is_cores),
        held: Held::Free,
    }
}

pub(super) fn tenants(world: &World, accounts: &BTreeMap<String, Account>) -> Vec<Tenant> {
    let tenant = |one: &super::TenantTerms| {
        let account = accounts.get(&one.name).copied().unwrap_or_default();
        Tenant { share: one.share, quota: one.quota, account }
    };
    world.tenants.iter().map(tenant).collect()
}

impl TrainingJob {
    pub fn loan(&self, lease: Duration, now: Moment) -> Job {
        let life = &self.life;
        let mut ask = self.ask;
        let checkpoint = life.progress.and_then(|progress| progress.checkpoint_ms);
        let checkpoint = checkpoint.filter(|at| *at >= life.started_ms);
        let phase = if life.state.waits() {
            Phase::Waiting { since: moment(life.since_ms) }
        } else if life.stop.is_some() {
            Phase::Leaving
        } else {
            Phase::Running { since: moment(life.started_ms), lease_until: now + lease }
        };
        if !life.seats.is_empty() && checkpoint.is_none() {
            // Without a checkpoint another width would be a new beginning.
            ask.most = ask.least.max(u32::try_from(life.seats.len()).unwrap_or(u32::MAX));
        }
        let done = |steps: u64, step: u64| (step as f64 / steps.max(1) as f64).min(1.0);
        Job {
            id: JobId(self.id),
            ask,
            submitted: moment(self.submitted_ms),
            phase,
            attained: life.attained_gpu_s,
            forgiven: life.forgiven_gpu_s,
            ran: Duration::try_from_secs_f64(life.ran_s).unwrap_or_default(),
            progress: life.progress.and_then(|one| Some(done(one.steps?, one.step))),
            checkpoint: checkpoint.map(moment),
            checkpoint_takes: life.checkpoint_takes_ms.map(Duration::from_millis),
        }
    }
}

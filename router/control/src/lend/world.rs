//! The fleet, the jobs and the tenants as the decisions see them.

use std::{collections::BTreeMap, time::Duration};

use config::{Config, Loans};
use mig::{Kind, Profile};
use policy::{
    fleet::SliceId,
    loan::{
        Account, Ask, Held, Job, JobId, Keep, Phase, Slice, Tenant, Wanted, has_room, slice_speed,
    },
    moment::Moment,
};
use protocol::{GpuReport, SliceReport};

use crate::{
    fleet::Seen,
    jobs::{Record, Spec, profile_compute},
    ledger::{Needs, Slices},
};

const MIB: u64 = 1 << 20;
/// Compute slices of a GPU that is not in the MIG table.
const SEVENTHS: u8 = 7;
/// The notice where requests miss their objective until the slice is back.
pub(super) const URGENT: Duration = Duration::from_secs(1);

/// Every slice that could be lent or is, and where it is.
#[derive(Debug, Default)]
pub(crate) struct Lendable {
    pub(super) seats: Vec<SliceId>,
    pub(crate) slices: Vec<Slice>,
}

/// A moment of the clock that records are dated by.
pub(crate) fn moment(ms: u64) -> Moment {
    Moment::from_micros(ms.saturating_mul(1000))
}

/// The same in milliseconds.
pub(crate) fn millis(moment: Moment) -> u64 {
    moment.micros() / 1000
}

impl Lendable {
    /// Those of workers that run jobs; `records` are the jobs that have not ended.
    pub(crate) fn new(seen: &[Seen], owners: &Slices, records: &[Record], now_ms: u64) -> Self {
        let mut holders: BTreeMap<&SliceId, Held> = BTreeMap::new();
        for record in records {
            for seat in &record.life.seats {
                let stays = record.life.stop.as_ref().is_none_or(|stop| stop.seats.contains(seat));
                let by = record.life.stop.as_ref().map_or(now_ms, |stop| stop.by_ms);
                let id = JobId(record.id);
                let held = if stays { Held::Lent(id) } else { Held::Leaving { by: moment(by) } };
                holders.insert(seat, held);
            }
            let coming = record.life.stop.iter().flat_map(|stop| &stop.seats);
            holders.extend(coming.map(|seat| (seat, Held::Lent(JobId(record.id)))));
        }
        let mut lendable = Self::default();
        let mut gpus = 0;
        for (host, seen) in (0..).zip(seen) {
            for gpu in &seen.report.gpus {
                let number = gpus;
                gpus += 1;
                if !seen.report.lends {
                    continue;
                }
                for slice in gpu.slices.iter().filter(|slice| slice.uuid.is_some()) {
                    let position = slice.position.clone();
                    let seat = SliceId { worker: seen.worker.clone(), gpu: gpu.index, position };
                    let held = match holders.get(&seat) {
                        Some(held) => *held,
                        None if owners.serves(&seat) || !slice.replicas.is_empty() => {
                            Held::Inference
                        }

                        // Of a job that nobody knows, which the worker was told to end.
                        None if slice.rank.is_some() => Held::Leaving { by: moment(now_ms) },
                        // What a worker that is to go has lent comes back, and nothing is added.
                        None if seen.report.leaving => Held::Inference,
                        None => Held::Free,
                    };
                    let base = measured(gpu, slice);
                    lendable.slices.push(Slice { host, gpu: number, held, ..base });
                    lendable.seats.push(seat);
                }
            }
        }
        lendable
    }

    /// The slices there are, and those that could be cut for `spec` where nobody has said how.
    pub(crate) fn with_cuttable(&self, seen: &[Seen], spec: &Spec) -> Vec<Slice> {
        let mut slices = self.slices.clone();
        let lends = |seen: &&Seen| seen.report.lends && !seen.report.leaving;
        for gpu in seen.iter().filter(lends).flat_map(|seen| &seen.report.gpus) {
            let kind = gpu.kind.as_deref().and_then(|kind| mig::kind(kind).ok());
            let kind = kind.filter(|_| gpu.can_reshape && gpu.pinned.is_none());
            let Some((kind, profile)) = kind.and_then(|kind| Some((kind, profile(kind, spec)?)))
            else {
                continue;
            };
            let suits = |slice: &&SliceReport| {
                let size = profile_compute(&slice.profile).unwrap_or(0);
                slice.uuid.is_some() && size >= profile.compute_slices
            };
            let there = gpu.slices.iter().filter(suits).count();
            let served = gpu.slices.iter().any(|slice| !slice.replicas.is_empty());
            let slice = Slice {
                host: 0,
                gpu: 0,
                compute: profile.compute_slices,
                share: f64::from(profile.compute_slices) / f64::from(kind.compute_slices.max(1)),
                speed: slice_speed(profile.compute_slices, kind.compute_slices),
                memory_mib: memory_mib(profile),
                held: if served { Held::Inference } else { Held::Free },
            };
            let more = usize::from(profile.max_instances).saturating_sub(there);
            slices.extend(std::iter::repeat_n(slice, more));
        }
        slices
    }

    /// Keeps idle slices from being lent.
    pub(super) fn withhold(&mut self, kept: impl Fn(&SliceId) -> bool) {
        for (seat, slice) in self.seats.iter().zip(&mut self.slices) {
            if slice.held == Held::Free && kept(seat) {
                slice.held = Held::Inference;
            }
        }
    }

    /// What `seats` are of a GPU, together.
    pub(super) fn gpus(&self, seats: &[SliceId]) -> f64 {
        let of = |seat: &SliceId| self.seats.iter().position(|other| other == seat);
        seats.iter().filter_map(of).map(|index| self.slices[index].share).sum()
    }

    /// What must come back, by index.
    pub(super) fn wanted(&self, needs: &Needs, notice: Duration, now: Moment) -> Vec<Wanted> {
        let wanted = needs.wanted.iter().map(|want| {
            let at = |seat: &SliceId| self.seats.iter().position(|other| other == seat);
            let by = now + if want.urgent { URGENT.min(notice) } else { notice };
            let slices = want.seats.iter().filter_map(at).collect();
            Wanted { slices, count: want.count, by }
        });
        wanted.collect()
    }
}

/// What is cut for a job on GPUs of a kind: the profile it names, or the smallest with memory for it.
fn profile<'a>(kind: &'a Kind, spec: &Spec) -> Option<&'a Profile> {
    let fits = |profile: &&Profile| match &spec.profile {
        Some(name) => profile.name == *name,
        None => !profile.media && has_room(memory_mib(profile), spec.memory_mib),
    };
    kind.profiles.iter().filter(fits).min_by_key(|profile| profile.memory_slices)
}

/// The memory of a slice of this profile.
pub(crate) fn memory_mib(profile: &Profile) -> u64 {
    (profile.memory_gib * 1024.0) as u64
}

/// What must stay idle.
pub(super) fn keep(needs: &Needs, now: Moment) -> Keep {
    Keep { forecast: needs.forecast, reserve: needs.reserve, by: now + needs.within }
}

/// A slice's size, speed and memory.
fn measured(gpu: &GpuReport, slice: &SliceReport) -> Slice {
    let kind = gpu.kind.as_deref().and_then(|kind| mig::kind(kind).ok());
    let all = kind.map_or(SEVENTHS, |kind| kind.compute_slices);
    let position = kind.and_then(|kind| kind.position(&slice.position).ok());
    let compute = position.map_or(all, |position| position.profile().compute_slices);
    Slice {
        host: 0,
        gpu: 0,
        compute,
        share: f64::from(compute) / f64::from(all.max(1)),
        speed: slice_speed(compute, all),
        memory_mib: slice.memory_bytes.map_or(u64::MAX, |bytes| bytes / MIB),
        held: Held::Free,
    }
}

/// The tenants by the index jobs carry; the last is for jobs of nobody.
pub(crate) fn tenants(
    config: &Config,
    loans: Option<&Loans>,
    accounts: &BTreeMap<String, Account>,
) -> Vec<Tenant> {
    let quota = loans.and_then(|loans| loans.tenant_slices).unwrap_or(u32::MAX);
    let tenant = |name: &str, share| {
        let account = accounts.get(name).copied().unwrap_or_default();
        Tenant { share, quota, account }
    };
    let named = config.tenants.iter().map(|one| tenant(&one.name, one.share));
    named.chain([tenant(NOBODY, 1.0)]).collect()
}

/// The account of jobs of no tenant.
pub(super) const NOBODY: &str = "";

/// The index of a job's tenant.
pub(super) fn tenant(config: &Config, spec: &Spec) -> usize {
    let named = spec.tenant.as_ref();
    let at = named.and_then(|name| config.tenants.iter().position(|one| one.name == *name));
    at.unwrap_or(config.tenants.len())
}

/// What `spec` asks for.
pub(crate) fn ask(config: &Config, spec: &Spec) -> Ask {
    Ask {
        tenant: tenant(config, spec),
        least: spec.slices_min,
        most: spec.slices_max,
        compute: spec.profile.as_deref().and_then(profile_compute).unwrap_or(1),
        memory_mib: spec.memory_mib,
        takes: spec.takes_s.map(Duration::from_secs),
        deadline: spec.deadline_ms.map(moment),
    }
}

/// A job as the decisions see it.
pub(crate) fn job(config: &Config, record: &Record, lease: Duration, now_ms: u64) -> Job {
    let mut ask = ask(config, &record.spec);
    let checkpoint = record.life.progress.and_then(|progress| progress.checkpoint_ms);
    let checkpoint = checkpoint.filter(|at| *at >= record.life.started_ms);
    let phase = if record.life.state.waits() {
        Phase::Waiting { since: moment(record.life.since_ms) }
    } else if record.life.stop.is_some() {
        Phase::Leaving
    } else {
        let (since, lease_until) = (moment(record.life.started_ms), moment(now_ms) + lease);
        Phase::Running { since, lease_until }
    };
    if !record.life.seats.is_empty() && checkpoint.is_none() {
        // Without a checkpoint another width would be a new beginning.
        ask.most = ask.least.max(u32::try_from(record.life.seats.len()).unwrap_or(u32::MAX));
    }
    let done = |steps: u64, step: u64| (step as f64 / steps.max(1) as f64).min(1.0);
    Job {
        id: JobId(record.id),
        ask,
        submitted: moment(record.submitted_ms),
        phase,
        attained: record.life.attained_gpu_s,
        forgiven: record.life.forgiven_gpu_s,
        ran: Duration::try_from_secs_f64(record.life.ran_s).unwrap_or_default(),
        progress: record.life.progress.and_then(|one| Some(done(one.steps?, one.step))),
        checkpoint: checkpoint.map(moment),
        checkpoint_takes: record.life.checkpoint_takes_ms.map(Duration::from_millis),
    }
}

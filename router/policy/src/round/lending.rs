//! What inference needs of lent slices, which jobs start, resize and stop, and what is cut for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Event, JobChange, LoanMemory, PlaceMemory, TrainingJob, Waits, World,
    lendable::{Lendable, URGENT, millis, profile_memory_mib, tenants, whole_ms},
    settling::Settled,
    sites::{Site, Sites},
};
use crate::{
    demand::{Forecast, Why},
    fleet::SliceId,
    job::{Counts, Life, State, Stopping, begin},
    loan::{self, Account, Act, Decisions, Held, Keep, Start, Stop, Use, accrue, has_room},
    place::{Gpu, Slice, Snapshot, Target, room},
};

const SEVENTHS: u32 = 7;

/// What inference needs of the slices it does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub wanted: Vec<Want>,
    /// Compute slices that must stay idle: what the failure of one GPU would take away.
    pub reserve: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub slices: Vec<SliceId>,
    pub count: u32,
    /// Whether requests miss their objective until then, so that the usual notice is too long.
    pub urgent: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lent {
    pub(super) changes: Vec<JobChange>,
    pub(super) counts: Counts,
    pub(super) waits: BTreeMap<u64, Waits>,
}

pub(super) fn needs(
    world: &World,
    place: &PlaceMemory,
    sites: &Sites,
    forecasts: &[Forecast],
) -> Needs {
    let mut wanted = Vec::new();
    if let Some(plan) = &place.plan {
        let losing = |model: usize| {
            let name = &plan.snapshot.models[model].name;
            let why = world.model(name).and_then(|index| forecasts.get(index)).map(|one| one.why);
            matches!(why, Some(Why::Late | Why::Queue | Why::Panic))
                || place.demands.is_losing(name)
        };
        // Requests are lost already, so that the usual notice is too long.
        let refused = plan.decision.refusals.iter().filter_map(|refusal| refusal.model);
        let urgent = refused.into_iter().any(losing);
        for (gpu, position) in &plan.back {
            let site = sites.site(&plan.gpus[*gpu]).map(|site| &sites.all[site]);
            let found = site.and_then(|site| {
                let spot = site.spots.iter().find(|spot| spot.position == *position)?;
                spot.lent.then(|| site.slice(spot))
            });
            wanted.extend(found.map(|slice| Want { slices: vec![slice], count: 1, urgent }));
        }
    }
    for site in &sites.all {
        let vanishing = site.spots.iter().filter(|spot| spot.lent && (spot.doomed || !site.open));
        wanted.extend(vanishing.map(|spot| Want {
            slices: vec![site.slice(spot)],
            count: 1,
            urgent: false,
        }));
    }
    Needs { wanted, reserve: world.rules.plan.spare_gpus * SEVENTHS }
}

/// Whether `job` could ever run in `world`, where inference has `served`, and by when it must start.
///
/// # Errors
///
/// Why it could not.
pub fn admission(
    world: &World,
    served: &BTreeSet<SliceId>,
    accounts: &BTreeMap<String, Account>,
    job: &TrainingJob,
) -> Result<loan::Admitted, loan::Refused> {
    let lendable = Lendable::new(world, &world.jobs, served);
    let (_, lease) = world.terms();
    let jobs: Vec<loan::Job> = world.jobs.iter().map(|job| job.loan(lease, world.now)).collect();
    let slices = lendable.with_cuttable(world, job);
    let offered = slices.iter().filter(|slice| slice.held != Held::Inference).count();
    let kept = (world.rules.plan.spare_gpus * SEVENTHS) as usize;
    let dependable = u32::try_from(offered.saturating_sub(kept)).unwrap_or(u32::MAX);
    let tenants = tenants(world, accounts);
    let offer =
        loan::Offer { now: world.now, slices: &slices, tenants: &tenants, jobs: &jobs, dependable };
    loan::admit(&job.ask, &offer)
}

impl PlaceMemory {
    /// Cuts slices for jobs that wait because there are too few.
    pub(super) fn cut_for_jobs(
        &mut self,
        world: &World,
        (sites, snapshot): (&mut Sites, &Snapshot),
        target: &Target,
        events: &mut Vec<Event>,
    ) {
        let waiting = || world.jobs.iter().filter(|job| job.life.state.waits());
        let cuts = world.rules.loans.as_ref().is_some_and(|loans| loans.cuts);
        if !cuts || waiting().next().is_none() || snapshot.gpus.len() != sites.all.len() {
            return;
        }
        let served = self.served(sites);
        let mut taken = BTreeSet::new();
        let mut after = snapshot.clone();
        for job in waiting() {
            let free = free(sites, job, &served, &mut taken);
            if free >= job.ask.least {
                continue;
            }
            // What was found for a job is not cut for one as well.
            for (site, gpu) in sites.all.iter().zip(&mut after.gpus) {
                for spot in site.spots.iter().filter(|spot| taken.contains(&site.slice(spot))) {
                    let there = gpu.slices.iter_mut().filter(|one| one.position == spot.position);
                    there.for_each(|slice| slice.loaned = true);
                }
            }
            for _ in free..job.ask.least {
                let profiles = profiles(&after, job);
                let mut rooms = profiles.iter().map(|profile| room(&after, target, profile));
                let Some(found) = rooms.find_map(|room| room) else { break };
                let site = &mut sites.all[found.gpu];
                let positions = site.cut(&found.destroy, &[found.create]);
                let (gpu, why) = (site.id.clone(), format!("for job {}", job.id));
                self.cuts.insert(gpu.clone(), positions.clone());
                events.push(Event::Cut { gpu, positions, why });
                // Whoever comes next finds it taken.
                let slices = &mut after.gpus[found.gpu].slices;
                slices.retain(|slice| !found.destroy.contains(&slice.position));
                let (position, replicas) = (found.create, Vec::new());
                slices.push(Slice { position, loaned: true, doomed: false, replicas });
            }
        }
    }
}

/// How many slices there are for a job that nobody has, or has been found for before.
fn free(
    sites: &Sites,
    job: &TrainingJob,
    served: &BTreeSet<SliceId>,
    taken: &mut BTreeSet<SliceId>,
) -> u32 {
    let mut free = 0;
    let suits = |site: &&Site| site.open && job.ask.home.suits(site.kind);
    for site in sites.all.iter().filter(suits) {
        for spot in site.spots.iter().filter(|spot| !spot.lent && !spot.doomed) {
            let profile = spot.position.profile();
            let has_room = has_room(profile_memory_mib(profile), job.ask.memory_mib);
            let fits = profile.compute_slices >= job.ask.compute && has_room;
            let slice = site.slice(spot);
            let enough = free >= job.ask.least;
            if fits && !enough && !served.contains(&slice) && taken.insert(slice) {
                free += 1;
            }
        }
    }
    free
}

/// The profile a job asks for, or those with memory for it, smallest first.
fn profiles(snapshot: &Snapshot, job: &TrainingJob) -> Vec<String> {
    if let Some(profile) = &job.profile {
        return vec![profile.clone()];
    }
    let mut found: Vec<(u8, String)> = Vec::new();
    let suits = |gpu: &&Gpu| gpu.cuttable && job.ask.home.suits(gpu.kind);
    for gpu in snapshot.gpus.iter().filter(suits) {
        for profile in gpu.kind.profiles.iter().filter(|profile| !profile.media) {
            let fits = has_room(profile_memory_mib(profile), job.ask.memory_mib);
            if fits && !found.iter().any(|(_, name)| *name == profile.name) {
                found.push((profile.memory_slices, profile.name.clone()));
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

impl LoanMemory {
    /// What to start, resize and stop, after ranks were settled; `served` is inference's.
    pub(super) fn lend(
        &mut self,
        world: &World,
        settled: Settled,
        needs: &Needs,
        served: &BTreeSet<SliceId>,
    ) -> Lent {
        let Settled { jobs, over, counts, evicted, elapsed } = settled;
        let mut lent = Lent { counts, ..Lent::default() };
        let rules = world.loan_rules();
        let now = world.now;
        self.call_back(needs, now + rules.lease, world, served);
        if !world.jobs.is_empty() {
            let mut lendable = Lendable::new(world, &jobs, served);
            lendable.withhold(|slice| self.called_back.contains_key(slice));
            let mut wants = needs.wanted.clone();
            wants.extend(jobs.iter().filter(|job| evicted.contains(&job.id)).map(all_of));
            let wanted = lendable.wanted(&wants, rules.notice, now);
            let mut tenants = tenants(world, &self.accounts);
            self.accrue(world, &jobs, (&mut tenants, elapsed), &lendable);
            let due =
                |job: &&TrainingJob| job.life.not_before_ms.is_none_or(|at| at <= world.now_ms());
            let offered: Vec<loan::Job> =
                jobs.iter().filter(due).map(|job| job.loan(rules.lease, now)).collect();
            let Decisions { acts, waits } = loan::decide(
                &loan::LoanWorld {
                    now,
                    slices: &lendable.slices,
                    jobs: &offered,
                    tenants: &tenants,
                    keep: Keep { forecast: 0, reserve: needs.reserve, by: now },
                    wanted: &wanted,
                    history: &self.history,
                },
                &rules,
            );
            lent.waits = explained(waits, jobs.iter().filter(|job| !due(job)));
            let carry = Carry {
                lendable: &lendable,
                notice_ms: whole_ms(rules.notice),
                now_ms: world.now_ms(),
            };
            let mut after: BTreeMap<u64, Life> = BTreeMap::new();
            for act in acts {
                let id = act.job().0;
                let Some(job) = jobs.iter().find(|job| job.id == id) else { continue };
                let mut life = job.life.clone();
                carry.change(&mut life, &mut lent.counts, act);
                if life != job.life {
                    after.insert(id, life);
                }
            }
            carry.hasten(&jobs, &wants, &mut after, &mut lent.counts);
            for (_, life) in after.iter_mut().filter(|(id, _)| evicted.contains(id)) {
                // Else it would be back at once.
                life.not_before_ms = Some(world.now_ms() + whole_ms(rules.lease));
            }
            lent.changes = changes(world, jobs.into_iter().chain(over), &mut after);
        }
        lent
    }

    /// Remembers what is called back: lent again before inference has taken it, a slice would go to
    /// and fro with every change of the forecast.
    fn call_back(
        &mut self,
        needs: &Needs,
        until: crate::moment::Moment,
        world: &World,
        served: &BTreeSet<SliceId>,
    ) {
        let slices = needs.wanted.iter().flat_map(|want| want.slices.iter().cloned());
        self.called_back.extend(slices.map(|slice| (slice, until)));
        self.called_back.retain(|slice, until| *until > world.now && !served.contains(slice));
    }

    fn accrue(
        &mut self,
        world: &World,
        jobs: &[TrainingJob],
        (tenants, elapsed): (&mut [loan::Tenant], Duration),
        lendable: &Lendable,
    ) {
        let mut uses = vec![Use::default(); tenants.len()];
        let smallest = lendable.slices.iter().map(|slice| slice.share).fold(1.0, f64::min);
        for job in jobs {
            let used = &mut uses[job.ask.tenant];
            let held = if job.life.seats.is_empty() { 0.0 } else { job.life.gpus };
            used.held += held;
            used.wants += held.max(f64::from(job.ask.least) * smallest);
        }
        let offered = lendable.slices.iter().filter(|slice| slice.held != Held::Inference);
        let capacity = offered.map(|slice| slice.share).sum();
        accrue(tenants, &uses, capacity, elapsed);
        let accounts = world.tenants.iter().zip(tenants.iter());
        self.accounts.extend(accounts.map(|(one, tenant)| (one.name.clone(), tenant.account)));
    }
}

/// Why each job waits: as loans say, or because it is not due yet.
fn explained<'a>(
    waits: Vec<loan::Wait>,
    later: impl Iterator<Item = &'a TrainingJob>,
) -> BTreeMap<u64, Waits> {
    let waits = waits.into_iter().map(|wait| {
        let may_start_ms = wait.may_start.map(millis);
        (wait.job.0, Waits { why: wait.why.to_string(), may_start_ms })
    });
    let later = later.map(|job| {
        let (why, may_start_ms) = (job.life.reason.clone(), job.life.not_before_ms);
        (job.id, Waits { why, may_start_ms })
    });
    waits.chain(later).collect()
}

fn changes(
    world: &World,
    jobs: impl Iterator<Item = TrainingJob>,
    after: &mut BTreeMap<u64, Life>,
) -> Vec<JobChange> {
    let mut changes = Vec::new();
    for job in jobs {
        let after = after.remove(&job.id).unwrap_or(job.life);
        let Some(read) = world.jobs.iter().find(|read| read.id == job.id) else { continue };
        if after != read.life {
            changes.push(JobChange { id: job.id, before: read.life.clone(), after });
        }
    }
    changes
}

fn all_of(job: &TrainingJob) -> Want {
    let count = u32::try_from(job.life.seats.len()).unwrap_or(u32::MAX);
    Want { slices: job.life.seats.clone(), count, urgent: false }
}

struct Carry<'a> {
    lendable: &'a Lendable,
    notice_ms: u64,
    now_ms: u64,
}

impl Carry<'_> {
    /// Has jobs that were told to stop do so sooner, where requests are lost until then.
    fn hasten(
        &self,
        jobs: &[TrainingJob],
        wants: &[Want],
        after: &mut BTreeMap<u64, Life>,
        counts: &mut Counts,
    ) {
        let by_ms = self.now_ms + whole_ms(URGENT);
        let urgent =
            |slice: &SliceId| wants.iter().any(|want| want.urgent && want.slices.contains(slice));
        for TrainingJob { id, life, .. } in jobs {
            let Some(stop) = life.stop.as_ref().filter(|stop| stop.by_ms > by_ms) else {
                continue;
            };
            let mut given = life.seats.iter().filter(|slice| !stop.seats.contains(slice));
            if after.contains_key(id) || !given.any(urgent) {
                continue;
            }
            let why = Stop::Inference { emergency: true };
            let notice_ms = stop.notice_ms.min(whole_ms(URGENT));
            let sooner = Stopping { by_ms, notice_ms, reason: why.to_string(), ..stop.clone() };
            let mut hastened = life.clone();
            hastened.stop(life.state, sooner, self.now_ms);
            count(counts, why);
            after.insert(*id, hastened);
        }
    }

    fn change(&self, life: &mut Life, counts: &mut Counts, act: Act) {
        match act {
            Act::Start { slices, why, .. } => self.start(life, &slices, why),
            // A loan is renewed by its worker for as long as there is a router.
            Act::Renew { .. } => {}
            Act::Grow { slices, .. } => {
                let more = self.ids(&slices);
                let seats: Vec<SliceId> = life.seats.iter().cloned().chain(more).collect();
                let reason = format!("grows to {} slices", seats.len());
                let stop = self.resized(seats, reason, self.now_ms + self.notice_ms);
                life.stop(State::Noticed, stop, self.now_ms);
            }
            Act::Shrink { slices, by, why, .. } => {
                count(counts, why);
                let given = self.ids(&slices);
                let keeps = life.seats.iter().filter(|slice| !given.contains(slice));
                let seats: Vec<SliceId> = keeps.cloned().collect();
                let reason = format!("{why}; goes on with {}", seats.len());
                let stop = self.resized(seats, reason, millis(by));
                life.stop(State::Shrinking, stop, self.now_ms);
            }
            Act::Stop { by, why, .. } => {
                count(counts, why);
                let by_ms = millis(by);
                let notice_ms = by_ms.saturating_sub(self.now_ms);
                let (then, seats) = (State::Preempted, Vec::new());
                let stop = Stopping { then, seats, reason: why.to_string(), notice_ms, by_ms };
                life.stop(State::Noticed, stop, self.now_ms);
            }
        }
    }

    fn start(&self, life: &mut Life, slices: &[usize], why: Start) {
        let seats = self.ids(slices);
        if let Start::Promoted { .. } = why {
            life.forgiven_gpu_s = life.attained_gpu_s;
        }
        life.gpus = self.lendable.gpus(&seats);
        begin(life, seats, why.to_string(), self.now_ms);
    }

    /// Another width is a stop, and a start from the checkpoint on other slices.
    fn resized(&self, seats: Vec<SliceId>, reason: String, by_ms: u64) -> Stopping {
        let notice_ms = by_ms.saturating_sub(self.now_ms);
        Stopping { then: State::Starting, seats, reason, notice_ms, by_ms }
    }

    fn ids(&self, slices: &[usize]) -> Vec<SliceId> {
        slices.iter().map(|index| self.lendable.ids[*index].clone()).collect()
    }
}

fn count(counts: &mut Counts, why: Stop) {
    match why {
        Stop::Inference { emergency } => {
            counts.for_inference += 1;
            counts.in_emergency += u64::from(emergency);
        }
        Stop::Yields { .. } => counts.for_jobs += 1,
    }
}

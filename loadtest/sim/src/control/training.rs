//! Training jobs on the slices that rounds lend.

use std::{collections::BTreeMap, time::Duration};

use policy::{
    job::{Life, Rank, RankEnd, RankProgress, RankState},
    loan::{Ask, gang_speed, slice_speed},
    moment::Moment,
    round::{AskedRank, Round, SeenRank, TenantTerms, TrainingJob},
};

use super::{SimWorkers, moment, nobody};
use crate::{
    study::Training,
    training::{Habits, TraceJob, whole_jobs},
};

#[derive(Clone, Debug)]
pub(super) struct Trainee {
    job: TraceJob,
    /// Seconds of work left at its asked width on whole GPUs.
    left_s: f64,
    /// The same when it last checkpointed, and when that was.
    saved_s: f64,
    saved_at: Moment,
    /// The start that its ranks belong to, and when they make progress.
    run: u32,
    ready_at: Moment,
    /// When its ranks have stopped, if they were told to.
    stops_at: Option<Moment>,
    first_start: Option<Moment>,
    came: bool,
    worked: Moment,
}

#[derive(Clone, Copy, Debug)]
pub struct Trained {
    pub completion: Duration,
    pub queueing: Duration,
    /// GPU-seconds done twice.
    pub lost_gpu_s: f64,
    pub starts: u32,
}

/// The tenants of the jobs, and the jobs by number.
pub(super) fn jobs(training: Option<&Training>) -> (Vec<TenantTerms>, BTreeMap<u64, Trainee>) {
    let Some(training) = training else { return (vec![nobody()], BTreeMap::new()) };
    let (jobs, names) = whole_jobs(&training.jobs);
    let tenant = |name: String| TenantTerms { name, ..nobody() };
    let tenants = names.into_iter().map(tenant).chain([nobody()]).collect();
    let trainee = |(id, job): (u64, TraceJob)| {
        let left_s = job.takes.as_secs_f64();
        let trainee = Trainee {
            job,
            left_s,
            saved_s: left_s,
            saved_at: Moment::default(),
            run: 0,
            ready_at: Moment::default(),
            stops_at: None,
            first_start: None,
            came: false,
            worked: moment(0.0),
        };
        (id, trainee)
    };
    (tenants, (1..).zip(jobs).map(trainee).collect())
}

impl Trainee {
    fn submit(&self, id: u64, habits: &Habits) -> TrainingJob {
        let TraceJob { gpus, takes, tenant, submitted } = self.job;
        let at = moment(submitted.since(Moment::default()).as_secs_f64());
        let submitted_ms = at.micros() / 1000;
        TrainingJob {
            id,
            ask: Ask {
                tenant,
                least: gpus,
                most: if habits.elastic { gpus * 2 } else { gpus },
                compute: 1,
                memory_mib: 0,
                home: policy::fleet::Home::Any,
                takes: habits.lengths_known.then_some(takes),
                deadline: None,
            },
            profile: None,
            retries: 0,
            submitted_ms,
            life: Life::new(submitted_ms),
        }
    }

    /// Works until `now` at `speed` times what it asked for.
    fn work(&mut self, speed: f64, now: Moment, habits: &Habits) {
        let began = self.worked.max(self.ready_at);
        let until = self.stops_at.map_or(now, |at| at.min(now));
        self.left_s = (self.left_s - until.since(began).as_secs_f64() * speed).max(0.0);
        self.worked = now;
        if now.since(self.saved_at) >= habits.checkpoint_every {
            (self.saved_s, self.saved_at) = (self.left_s, now);
        }
    }

    fn rank(&self, now: Moment) -> Rank {
        let total = self.job.takes.as_secs_f64();
        let state = match self.stops_at {
            _ if self.left_s <= 0.0 => RankState::Ended(RankEnd::Exited { code: 0 }),
            Some(at) if at <= now => RankState::Ended(RankEnd::Exited { code: 143 }),
            Some(_) => RankState::Checkpointing,
            None if now < self.ready_at => RankState::Starting,
            None => RankState::Running,
        };
        let checkpoint =
            (self.saved_at > Moment::default()).then_some((total - self.saved_s) as u64);
        let age = || u64::try_from(now.since(self.saved_at).as_millis()).unwrap_or(u64::MAX);
        let progress = RankProgress {
            step: (total - self.left_s) as u64,
            steps: Some((total as u64).max(1)),
            checkpoint,
            checkpoint_age_ms: checkpoint.map(|_| age()),
        };
        Rank { run: self.run, state, progress: Some(progress), said: None }
    }

    fn obey(&mut self, told: &AskedRank, now: Moment, habits: &Habits) {
        if self.run != told.run {
            self.run = told.run;
            // What was not saved is done again.
            self.left_s = self.saved_s;
            self.ready_at = now + habits.start_takes;
            (self.worked, self.stops_at) = (now, None);
            self.first_start.get_or_insert(now);
        }
        if let (Some(notice_ms), None) = (told.stop_notice_ms, self.stops_at) {
            let notice = Duration::from_millis(notice_ms);
            self.stops_at = Some(now + habits.checkpoint_takes.min(notice));
            if habits.checkpoint_takes <= notice {
                (self.saved_s, self.saved_at) = (self.left_s, now);
            }
        }
    }
}

impl SimWorkers {
    /// Jobs come, and those that run work until `now`.
    pub(super) fn train(&mut self, now: Moment) {
        for (id, trainee) in &mut self.trainees {
            let at = moment(trainee.job.submitted.since(Moment::default()).as_secs_f64());
            if !trainee.came && at <= now {
                trainee.came = true;
                self.world.jobs.push(trainee.submit(*id, &self.habits));
            }
        }
        for job in self.world.jobs.iter().filter(|job| !job.life.seats.is_empty()) {
            let speed = self.speed(job);
            let Some(trainee) = self.trainees.get_mut(&job.id) else { continue };
            if trainee.run == job.life.run {
                trainee.work(speed / f64::from(trainee.job.gpus), now, &self.habits);
            }
        }
        self.report_ranks(now);
    }

    /// How fast a job runs against one whole GPU.
    fn speed(&self, job: &TrainingJob) -> f64 {
        let slowest = job.life.seats.iter().filter_map(|slice| {
            let worker = self.world.workers.iter().find(|worker| worker.name == slice.worker)?;
            let kind = worker.gpus[0].kind?;
            let compute = kind.position(&slice.position).ok()?.profile().compute_slices;
            Some(slice_speed(compute, kind.compute_slices))
        });
        let slowest = slowest.fold(1.0, f64::min);
        gang_speed(u32::try_from(job.life.seats.len()).unwrap_or(u32::MAX), slowest)
    }

    fn report_ranks(&mut self, now: Moment) {
        let slices = self.world.workers.iter_mut().flat_map(|worker| &mut worker.gpus);
        for slice in slices.flat_map(|gpu| &mut gpu.slices) {
            let Some(seen) = &mut slice.rank else { continue };
            if let Some(trainee) = self.trainees.get(&seen.job) {
                seen.rank = trainee.rank(now);
            }
        }
    }

    pub(super) fn run_ranks(&mut self, now: Moment) {
        for worker in &mut self.world.workers {
            let Some(told) = self.told.get(&worker.name) else { continue };
            for (gpu, told) in worker.gpus.iter_mut().zip(&told.gpus) {
                for slice in &mut gpu.slices {
                    let wanted = told.slices.iter().find(|one| one.position == slice.position);
                    let Some(asked) = wanted.and_then(|one| one.rank.as_ref()) else {
                        slice.rank = None;
                        continue;
                    };
                    let Some(trainee) = self.trainees.get_mut(&asked.job) else { continue };
                    trainee.obey(asked, now, &self.habits);
                    slice.rank = Some(SeenRank { job: asked.job, rank: trainee.rank(now) });
                }
            }
        }
    }

    pub(super) fn account(&mut self, now: Moment) {
        let elapsed_s = now.since(self.settled).as_secs_f64();
        self.settled = now;
        for job in self.world.jobs.iter().filter(|job| !job.life.seats.is_empty()) {
            *self.given.entry(job.id).or_default() += elapsed_s * job.life.gpus;
        }
    }

    /// Takes the changes of a round for true; here a commit never fails.
    pub(super) fn commit(&mut self, round: &Round, now: Moment) {
        for change in &round.jobs {
            let known = self.world.jobs.iter_mut().find(|job| job.id == change.id);
            let Some(job) = known else { continue };
            job.life = change.after.clone();
            if !job.life.state.is_over() {
                continue;
            }
            if let Some(trainee) = self.trainees.remove(&job.id) {
                let at = moment(trainee.job.submitted.since(Moment::default()).as_secs_f64());
                self.trained.push(Trained {
                    completion: now.since(at),
                    queueing: trainee.first_start.unwrap_or(now).since(at),
                    lost_gpu_s: job.life.lost_gpu_s,
                    starts: job.life.run,
                });
            }
        }
        self.world.jobs.retain(|job| !job.life.state.is_over());
    }

    pub fn trained(&self) -> &[Trained] {
        &self.trained
    }

    /// Jobs that have come and not ended: those that wait, and the GPUs that the others have.
    pub fn training(&self) -> (usize, f64) {
        let waits = self.world.jobs.iter().filter(|job| job.life.state.waits()).count();
        let held = |job: &TrainingJob| if job.life.seats.is_empty() { 0.0 } else { job.life.gpus };
        (waits, self.world.jobs.iter().map(held).sum())
    }

    pub fn tenant_ratios(&self) -> Vec<f64> {
        let accounts = self.memory.loans.accounts().iter();
        accounts.filter(|(name, _)| !name.is_empty()).map(|(_, account)| account.ratio()).collect()
    }
}

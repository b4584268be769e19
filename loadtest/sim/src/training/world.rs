//! The state of a run, one round at a time.

use std::{collections::HashMap, time::Duration};

use policy::{
    loan::{
        Account, Act, Decisions, Held, History, Job, JobId, LoanWorld, Phase, Start, Stop, Tenant,
        Use, accrue, decide, gang_speed,
    },
    moment::Moment,
};

use super::{
    Broken, Report, Sample, Setup, claims,
    inference::Inference,
    life::{Life, checkpoint, waiting},
    report::Tally,
};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) struct Simulation<'a> {
    setup: Setup<'a>,
    pub(super) now: Moment,
    next: usize,
    pub(super) jobs: Vec<Job>,
    lives: Vec<Life>,
    tenants: Vec<Tenant>,
    history: History,
    inference: Inference<'a>,
    pub(super) tally: Tally,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(setup: Setup<'a>) -> Self {
        let tenant = Tenant { share: 1.0, quota: u32::MAX, account: Account::default() };
        let now = Moment::default();
        let mut setup = setup;
        let mut inference = Inference::new(setup.inference, &setup.habits);
        inference.begin(&mut setup.slices, now);
        Self {
            now,
            next: 0,
            jobs: Vec::new(),
            lives: Vec::new(),
            tenants: vec![tenant; setup.tenants.len()],
            history: History::default(),
            inference,
            tally: Tally::new(setup.tenants.len()),
            setup,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.next == self.setup.jobs.len() && self.jobs.is_empty()
    }

    pub(super) fn report(self) -> Report {
        let rises = self.inference.into_rises();
        Report { rises, ..self.tally.report(self.setup.tenants) }
    }

    pub(super) fn round(&mut self) -> Result<(), Broken> {
        if self.jobs.is_empty()
            && let Some(job) = self.setup.jobs.get(self.next)
        {
            self.skip_to(job.submitted);
        }
        self.submit();
        self.free_what_left();
        let wanted = self.inference.demand(&mut self.setup.slices, self.now);
        let keep = self.inference.keep(&self.setup.slices, self.now);
        let decisions = {
            let world = LoanWorld {
                now: self.now,
                slices: &self.setup.slices,
                jobs: &self.jobs,
                tenants: &self.tenants,
                keep,
                wanted: &wanted,
                history: &self.history,
            };
            let decisions = decide(&world, &self.setup.rules);
            claims::of_decisions(&world, &decisions).map_err(|claim| self.broken(claim))?;
            decisions
        };
        self.act(decisions);
        // Those told to go at once are gone.
        self.free_slices();
        self.inference.serve(&mut self.setup.slices, self.now);
        let given = self.advance();
        claims::of_state(&self.setup.slices, &self.jobs).map_err(|claim| self.broken(claim))?;
        self.tally.conserved(given).map_err(|claim| self.broken(claim))
    }

    /// A year after the last submission nobody waits any more.
    pub(super) fn hopes(&self) -> Result<(), Broken> {
        let last = self.setup.jobs.last().map_or_else(Moment::default, |job| job.submitted);
        match self.jobs.first() {
            Some(job) if self.now > last + YEAR => {
                Err(self.broken(format!("{} never ends: {:?}", job.id, job.phase)))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn broken(&self, claim: String) -> Broken {
        Broken { at: self.now, claim }
    }

    /// With no job there is nothing to decide until the next comes.
    fn skip_to(&mut self, submitted: Moment) {
        while self.now + self.setup.habits.round < submitted {
            self.inference.demand(&mut self.setup.slices, self.now);
            self.inference.serve(&mut self.setup.slices, self.now);
            self.now = self.now + self.setup.habits.round;
            self.tally.busy(0.0, self.setup.habits.round);
        }
    }

    fn submit(&mut self) {
        while let Some(job) = self.setup.jobs.get(self.next)
            && job.submitted <= self.now
        {
            let id = JobId(self.next as u64);
            self.jobs.push(waiting(id, job, &self.setup.habits));
            let total_s = job.takes.as_secs_f64();
            let ready = Moment::NEVER;
            self.lives.push(Life { left_s: total_s, saved_s: total_s, total_s, ready });
            self.next += 1;
        }
    }

    fn free_slices(&mut self) {
        let now = self.now;
        for slice in &mut self.setup.slices {
            if matches!(slice.held, Held::Leaving { by } if by <= now) {
                slice.held = Held::Free;
            }
        }
    }

    fn free_what_left(&mut self) {
        self.free_slices();
        let now = self.now;
        for job in &mut self.jobs {
            if job.phase == Phase::Leaving {
                job.phase = Phase::Waiting { since: now };
            }
        }
    }

    fn act(&mut self, decisions: Decisions) {
        let by_id: HashMap<JobId, usize> =
            self.jobs.iter().enumerate().map(|(index, job)| (job.id, index)).collect();
        for act in decisions.acts {
            match act {
                Act::Start { job, slices, lease_until, why } => {
                    let job = by_id[&job];
                    if let Start::Promoted { .. } = why {
                        self.jobs[job].forgiven = self.jobs[job].attained;
                    }
                    self.hold(&slices, Held::Lent(self.jobs[job].id));
                    self.begin(job, lease_until);
                }
                Act::Renew { job, lease_until: until } => {
                    if let Phase::Running { lease_until, .. } = &mut self.jobs[by_id[&job]].phase {
                        *lease_until = until;
                    }
                }
                Act::Grow { job, slices } => {
                    self.hold(&slices, Held::Lent(job));
                    self.resize(by_id[&job]);
                }
                Act::Shrink { job, slices, by, why } => {
                    self.leave(by_id[&job], by, why);
                    self.give_back(&slices, by);
                    self.resize(by_id[&job]);
                }
                Act::Stop { job, by, why } => self.stop(by_id[&job], by, why),
            }
        }
    }

    fn hold(&mut self, slices: &[usize], held: Held) {
        for slice in slices {
            self.setup.slices[*slice].held = held;
        }
    }

    fn give_back(&mut self, slices: &[usize], by: Moment) {
        for slice in slices {
            self.setup.slices[*slice].held = Held::Leaving { by };
        }
    }

    fn begin(&mut self, job: usize, lease_until: Moment) {
        self.jobs[job].phase = Phase::Running { since: self.now, lease_until };
        self.jobs[job].checkpoint = None;
        self.lives[job].ready = self.now + self.setup.habits.start_takes;
        self.tally.started(self.jobs[job].id, self.now);
    }

    /// A change of width is a stop and a start from the checkpoint just made.
    fn resize(&mut self, job: usize) {
        if let Phase::Running { since, .. } = &mut self.jobs[job].phase {
            *since = self.now;
        }
        self.lives[job].saved_s = self.lives[job].left_s;
        self.lives[job].ready = self.now + self.setup.habits.start_takes;
        self.tally.resizes += 1;
    }

    fn stop(&mut self, job: usize, by: Moment, why: Stop) {
        self.leave(job, by, why);
        let id = self.jobs[job].id;
        self.jobs[job].phase = Phase::Leaving;
        let held = |slice: &usize| self.setup.slices[*slice].held == Held::Lent(id);
        let slices: Vec<usize> = (0..self.setup.slices.len()).filter(held).collect();
        self.give_back(&slices, by);
        self.tally.preemptions += 1;
    }

    /// What is lost by going back to the last checkpoint, unless there is time for another.
    fn leave(&mut self, job: usize, by: Moment, why: Stop) {
        let id = self.jobs[job].id;
        let gpus: f64 = self
            .setup
            .slices
            .iter()
            .filter(|slice| slice.held == Held::Lent(id))
            .map(|slice| slice.share)
            .sum();
        let Stop::Inference { .. } = why else {
            self.lives[job].saved_s = self.lives[job].left_s;
            return;
        };
        self.tally.reclaims += 1;
        let life = &mut self.lives[job];
        if by.since(self.now) < self.setup.habits.checkpoint_takes {
            self.tally.lost_s += (life.saved_s - life.left_s) * gpus;
            life.left_s = life.saved_s;
        } else {
            life.saved_s = life.left_s;
        }
    }

    /// Lets a round pass; the GPU-seconds that lent slices gave are returned.
    fn advance(&mut self) -> f64 {
        let (from, round) = (self.now, self.setup.habits.round);
        let to = from + round;
        let mut width: HashMap<JobId, (u32, f64, f64)> = HashMap::new();
        for slice in &self.setup.slices {
            if let Held::Lent(id) = slice.held {
                let (ranks, speed, gpus) = width.entry(id).or_insert((0, f64::INFINITY, 0.0));
                *ranks += 1;
                *speed = speed.min(slice.speed);
                *gpus += slice.share;
            }
        }
        self.account(round, &width);
        let mut ended = Vec::new();
        let mut given = 0.0;
        for (index, job) in self.jobs.iter_mut().enumerate() {
            let Some((ranks, slowest, gpus)) = width.get(&job.id) else { continue };
            let life = &mut self.lives[index];
            let speed = gang_speed(*ranks, *slowest) / gang_speed(job.ask.least, 1.0);
            let works = to.since(life.ready.max(from)).as_secs_f64();
            let needs = life.left_s / speed;
            let ran = if needs <= works {
                ended.push((index, life.ready.max(from) + Duration::from_secs_f64(needs)));
                round.as_secs_f64() - works + needs
            } else {
                life.left_s -= works * speed;
                round.as_secs_f64()
            };
            given += ran * gpus;
            job.attained += ran * gpus;
            job.ran += Duration::from_secs_f64(ran);
            self.tally.service_s += ran * gpus;
            job.progress = Some(1.0 - life.left_s / life.total_s);
            checkpoint(job, life, to, &self.setup.habits);
        }
        self.end(ended);
        self.now = to;
        given
    }

    fn end(&mut self, ended: Vec<(usize, Moment)>) {
        for (index, at) in ended.into_iter().rev() {
            let job = self.jobs.remove(index);
            self.lives.remove(index);
            self.history.add(job.attained);
            self.tally.ended(&job, at);
            for slice in &mut self.setup.slices {
                if slice.held == Held::Lent(job.id) {
                    slice.held = Held::Free;
                }
            }
        }
    }

    fn account(&mut self, round: Duration, width: &HashMap<JobId, (u32, f64, f64)>) {
        let mut uses = vec![Use::default(); self.tenants.len()];
        for job in &self.jobs {
            let held = width.get(&job.id).map_or(0.0, |(_, _, gpus)| *gpus);
            let tenant = &mut uses[job.ask.tenant];
            tenant.held += held;
            tenant.wants += held.max(f64::from(job.ask.least) * self.setup.slices[0].share);
        }
        let lendable = |held: Held| held != Held::Inference;
        let capacity: f64 =
            self.setup.slices.iter().filter(|one| lendable(one.held)).map(|one| one.share).sum();
        accrue(&mut self.tenants, &uses, capacity, round);
        if self.next < self.setup.jobs.len() {
            self.tally.busy(uses.iter().map(|used| used.held).sum(), round);
        }
        self.tally.account(&uses, capacity, round, self.inference.short());
        self.tally.sample(Sample {
            at: self.now,
            inference: f64::from(self.inference.has()),
            training: uses.iter().map(|used| used.held).sum(),
            waiting: (self.jobs.len() - width.len()) as f64,
        });
    }
}

mod admission;
mod lending;
mod reclaiming;
mod scheduling;

use super::*;

/// A job of the first tenant that takes any slice.
pub(super) fn ask(least: u32, most: u32) -> Ask {
    Ask {
        tenant: 0,
        least,
        most,
        compute: 1,
        memory_mib: 0,
        home: Default::default(),
        takes: None,
        deadline: None,
    }
}

fn at(seconds: u64) -> Moment {
    Moment::from_micros(seconds * 1_000_000)
}

/// A world that can be changed, two hours after its start.
struct Scene {
    now: Moment,
    slices: Vec<Slice>,
    jobs: Vec<Job>,
    tenants: Vec<Tenant>,
    keep: Keep,
    wanted: Vec<Wanted>,
    history: History,
    rules: Rules,
}

impl Scene {
    /// So many idle slices of a seventh, seven to a GPU, and two tenants.
    fn new(slices: u32) -> Self {
        let slice = |index: u32| Slice {
            host: 0,
            gpu: index / 7,
            compute: 1,
            share: 1.0 / 7.0,
            speed: 0.31,
            memory_mib: 10_000,
            cores: false,
            held: Held::Free,
        };
        let tenant = Tenant { share: 1.0, quota: u32::MAX, account: Account::default() };
        Self {
            now: at(7200),
            slices: (0..slices).map(slice).collect(),
            jobs: Vec::new(),
            tenants: vec![tenant; 2],
            keep: Keep { by: at(7200), ..Keep::default() },
            wanted: Vec::new(),
            history: History::default(),
            rules: Rules { fair_tenants: false, ..Rules::default() },
        }
    }

    fn ordered(order: impl JobOrder + 'static, slices: u32) -> Self {
        let mut scene = Self::new(slices);
        scene.rules.order = Box::new(order);
        scene
    }

    /// Adds a job that came at `second` and waits.
    fn waits(&mut self, ask: Ask, second: u64) -> JobId {
        let id = JobId(self.jobs.len() as u64 + 1);
        self.jobs.push(Job {
            id,
            ask,
            submitted: at(second),
            phase: Phase::Waiting { since: at(second) },
            attained: 0.0,
            forgiven: 0.0,
            ran: Duration::ZERO,
            progress: None,
            checkpoint: None,
            checkpoint_takes: None,
        });
        id
    }

    /// Adds a job that has run on `slices` since `second`.
    fn runs(&mut self, ask: Ask, slices: &[usize], second: u64) -> JobId {
        let id = self.waits(ask, second);
        for slice in slices {
            self.slices[*slice].held = Held::Lent(id);
        }
        let (now, job) = (self.now, self.job(id));
        job.phase =
            Phase::Running { since: at(second), lease_until: now + Duration::from_secs(60) };
        job.ran = now.since(at(second));
        job.attained = job.ran.as_secs_f64() * slices.len() as f64 / 7.0;
        id
    }

    fn job(&mut self, id: JobId) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.id == id).unwrap()
    }

    fn wants(&mut self, count: u32, by: Moment) {
        self.wanted.push(Wanted { slices: (0..self.slices.len()).collect(), count, by });
    }

    fn decide(&self) -> Decisions {
        let world = LoanWorld {
            now: self.now,
            slices: &self.slices,
            jobs: &self.jobs,
            tenants: &self.tenants,
            keep: self.keep,
            wanted: &self.wanted,
            history: &self.history,
        };
        decide(&world, &self.rules)
    }

    fn starts(&self) -> Vec<(JobId, usize)> {
        let starts = |act: &Act| match act {
            Act::Start { job, slices, .. } => Some((*job, slices.len())),
            Act::Renew { .. } | Act::Grow { .. } | Act::Shrink { .. } | Act::Stop { .. } => None,
        };
        self.decide().acts.iter().filter_map(starts).collect()
    }

    fn stops(&self) -> Vec<(JobId, Moment, Stop)> {
        let stops = |act: &Act| match act {
            Act::Stop { job, by, why } => Some((*job, *by, *why)),
            Act::Renew { .. } | Act::Grow { .. } | Act::Shrink { .. } | Act::Start { .. } => None,
        };
        self.decide().acts.iter().filter_map(stops).collect()
    }

    fn shrinks(&self) -> Vec<(JobId, usize)> {
        let shrinks = |act: &Act| match act {
            Act::Shrink { job, slices, .. } => Some((*job, slices.len())),
            Act::Renew { .. } | Act::Grow { .. } | Act::Start { .. } | Act::Stop { .. } => None,
        };
        self.decide().acts.iter().filter_map(shrinks).collect()
    }

    /// Why each waiting job waits, and until when.
    fn why(&self, job: JobId) -> (Why, Option<Moment>) {
        let waits = self.decide().waits;
        let wait = waits.iter().find(|wait| wait.job == job).unwrap();
        (wait.why, wait.may_start)
    }
}

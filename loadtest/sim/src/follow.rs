//! A fleet that follows its demand, by rates, beside training jobs if the study has any.
//!
//! What is asked is forecast, where replicas shall be is decided and slices are lent by the router's
//! own round on [simulated workers](crate::control), and how requests go with the replicas that are
//! ready is looked up as in [`rates`](crate::rates).

mod lookups;

use policy::{demand::with_room, place::Action, plan, round::Round};

use self::lookups::Lookups;
use crate::{
    claims::Broken,
    control::{SimWorkers, Violated, moment},
    fleet::SimFleet,
    place::{PlaceError, problem},
    rates::{Flow, offered},
    study::Study,
    summary::{
        self, Followed, FollowingSummary, Holding, Point, Stretch, Summary, TrainingSummary,
    },
};

const POINTS: usize = 400;
/// Times that rounds are carried out before the run begins.
const FIRST: u32 = 3;
/// How much each plan may be searched for; more finds hardly better ones of so few models.
const WORK: u64 = 200_000;

#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Round(#[from] Violated),
}

struct Follow<'a> {
    study: &'a Study,
    fleet: &'a SimFleet,
    problem: plan::Problem,
    workers: SimWorkers,
    lookups: Lookups<'a>,
    rest: Vec<(f64, f64)>,
    held: Vec<Holding>,
    reclaims: u64,
    busy_gpu_s: f64,
    /// By model, rows and batches.
    batches: Vec<(f64, f64)>,
    told: FollowingSummary,
}

pub fn run(study: &Study, fleet: &SimFleet) -> Result<Summary, FollowError> {
    let mut follow = Follow::new(study, fleet)?;
    let mut summary = summary::blank(study, fleet);
    let total = fleet.terms.duration.as_secs_f64();
    let step = study.interval.as_secs_f64().min(total);
    let intervals = (total / step).ceil() as usize;
    let each = intervals.div_ceil(POINTS).max(1);
    let mut sums = vec![Flow::default(); fleet.models.len()];
    let mut stretch = (0.0, Flow::default(), 0.0, 0.0);
    for index in 0..intervals {
        let span = (index as f64 * step, ((index + 1) as f64 * step).min(total));
        let lasts = span.1 - span.0;
        let flows = follow.interval(span)?;
        let used = follow.workers.gpus_used() as f64;
        follow.told.gpu_hours += used * lasts / 3600.0;
        let clairvoyant = f64::from(follow.clairvoyant(span)?);
        follow.told.clairvoyant_gpu_hours += clairvoyant * lasts / 3600.0;
        for (sum, flow) in sums.iter_mut().zip(flows) {
            stretch.1.add(flow);
            if span.0 >= fleet.terms.warmup.as_secs_f64() {
                sum.add(flow);
            }
        }
        stretch = (
            stretch.0 + lasts,
            stretch.1,
            stretch.2 + used * lasts,
            stretch.3 + clairvoyant * lasts,
        );
        if (index + 1) % each == 0 || index + 1 == intervals {
            follow.tell(&mut summary, span.1, stretch);
            stretch = (0.0, Flow::default(), 0.0, 0.0);
        }
    }
    for (model, flow) in summary.models.iter_mut().zip(sums) {
        model.ends = flow.ends();
    }
    follow.close(&mut summary, intervals)?;
    Ok(summary)
}

impl<'a> Follow<'a> {
    fn new(study: &'a Study, fleet: &'a SimFleet) -> Result<Self, FollowError> {
        let step = study.interval.as_secs_f64();
        let first = offered(fleet, (0.0, step));
        let mut problem = problem(study, &first);
        problem.rules.work = WORK;
        let mut follow = Self {
            study,
            fleet,
            workers: SimWorkers::new(study, fleet, &problem, &first),
            problem,
            lookups: Lookups::new(study, fleet),
            rest: vec![(0.0, 0.0); first.len()],
            held: Vec::new(),
            reclaims: 0,
            busy_gpu_s: 0.0,
            batches: vec![(0.0, 0.0); fleet.models.len()],
            told: FollowingSummary::default(),
        };
        // What is asked at first is served from the first: what came before is not looked at.
        for _ in 0..FIRST {
            follow.workers.rounds(moment(0.0))?;
            follow.workers.all_warm();
        }
        follow.told = FollowingSummary::default();
        Ok(follow)
    }

    fn interval(&mut self, span: (f64, f64)) -> Result<Vec<Flow>, FollowError> {
        let lasts = span.1 - span.0;
        let rates = offered(self.fleet, span);
        let all = self.workers.serving();
        let mut flows = Vec::with_capacity(rates.len());
        for (model, rate) in rates.iter().enumerate() {
            let mine: Vec<_> = all.iter().filter(|one| one.model == model).copied().collect();
            let (going, load) = self.lookups.going(&mine, *rate)?;
            let came = rate * lasts;
            let parts: f64 = mine.iter().map(|one| one.part).sum();
            self.busy_gpu_s += parts * load.min(1.0) * lasts;
            self.batches[model].0 += came * going.in_time;
            self.batches[model].1 += came * going.in_time / going.batch.max(1.0);
            flows.push(Flow::new(came, came * going.in_time, came * going.late));
            let rest = &mut self.rest[model];
            *rest = (rest.0 + came, rest.1 + came * (1.0 - going.in_time));
            let (came, late) = (rest.0.floor(), rest.1.floor().min(rest.0.floor()));
            self.workers.ask(model, came as u64, late as u64);
            *rest = (rest.0 - came, rest.1 - late);
        }
        for round in self.workers.rounds(moment(span.1))? {
            self.count(&round);
        }
        self.hold(span.1);
        Ok(flows)
    }

    fn count(&mut self, round: &Round) {
        self.reclaims += round.counts.for_inference;
        let Some(plan) = round.plan.as_ref().filter(|_| round.planned) else { return };
        for step in plan.decision.now() {
            match step.action {
                Action::Cut { .. } => self.told.cuts += 1,
                Action::Start { .. } => self.told.starts += 1,
                Action::Stop { .. } => self.told.stops += 1,
            }
        }
    }

    fn hold(&mut self, at_s: f64) {
        if self.study.training.is_some() {
            let (waiting, training_gpus) = self.workers.training();
            let inference_gpus = self.workers.gpus_used() as f64;
            let (at_h, waiting) = (at_s / 3600.0, waiting as f64);
            self.held.push(Holding { at_h, inference_gpus, training_gpus, waiting });
        }
    }

    /// GPUs that a plan would need that knows the rates of this interval.
    fn clairvoyant(&mut self, span: (f64, f64)) -> Result<u32, FollowError> {
        let rates: Vec<f64> = offered(self.fleet, span).into_iter().map(with_room).collect();
        Ok(self.lookups.gpus_for(&self.problem, &rates)?)
    }

    fn tell(&mut self, summary: &mut Summary, end_s: f64, stretch: (f64, Flow, f64, f64)) {
        let (lasts, flow, used, clairvoyant) = stretch;
        let at_s = end_s - lasts / 2.0;
        let (offered_rps, in_time_rps) = (flow.offered / lasts, flow.in_time / lasts);
        summary.timeline.push(Point { at_s, offered_rps, in_time_rps });
        self.told.course.push(Stretch {
            at_s,
            offered_rps,
            gpus: used / lasts,
            clairvoyant_gpus: clairvoyant / lasts,
        });
    }

    fn close(mut self, summary: &mut Summary, intervals: usize) -> Result<(), FollowError> {
        let step = self.study.interval.as_secs_f64();
        let mut peak = vec![0.0; self.fleet.models.len()];
        for index in 0..intervals {
            let span = (index as f64 * step, (index + 1) as f64 * step);
            for (peak, rate) in peak.iter_mut().zip(offered(self.fleet, span)) {
                *peak = f64::max(*peak, with_room(rate));
            }
        }
        let hours = self.fleet.terms.duration.as_secs_f64() / 3600.0;
        let gpus = self.lookups.gpus_for(&self.problem, &peak)?;
        self.told.static_peak_gpu_hours = f64::from(gpus) * hours;
        summary.events = intervals as u64;
        summary.utilisation = self.busy_gpu_s / 3600.0 / self.told.gpu_hours.max(1e-9);
        let serving = self.workers.serving();
        for (index, model) in summary.models.iter_mut().enumerate() {
            model.replicas = serving.iter().filter(|one| one.model == index).count();
            model.mean_batch = self.batches[index].0 / self.batches[index].1.max(1.0);
        }
        summary.gpus = self.workers.gpus();
        summary.gpus_used = self.workers.gpus_used();
        summary.replicas = self.workers.replicas();
        if let Some(training) = &self.study.training {
            let of = Followed { workers: &self.workers, held: &self.held, reclaims: self.reclaims };
            summary.training = Some(TrainingSummary::of_rounds(training, &of));
        }
        summary.following = Some(self.told);
        summary.close();
        Ok(())
    }
}

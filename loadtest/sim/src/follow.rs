//! A fleet that follows its demand, by rates: forecast, place, carry out, and again.
//!
//! What is asked is forecast by [`policy::demand`], where replicas shall be is decided by
//! [`policy::place`], and how requests go with those that are ready is looked up as in
//! [`rates`](crate::rates). Cutting a GPU and loading a model take their time; a replica that is told
//! to go is gone by the next interval.

mod fleet;
mod lookups;

use std::time::Duration;

use policy::{
    demand::{Demand, Rule, Seen, with_room},
    moment::Moment,
    place::{Action, Snapshot, place},
    plan,
};

use self::{fleet::LiveFleet, lookups::Lookups};
use crate::{
    claims::Broken,
    fleet::SimFleet,
    place::{PlaceError, problem},
    rates::{Flow, offered},
    study::Study,
    summary::{self, FollowingSummary, Point, Stretch, Summary},
};

/// The most points a timeline is told in.
const POINTS: usize = 400;
/// How often it is asked for a plan with fewer GPUs.
const CONSOLIDATE: Duration = Duration::from_secs(300);
/// Times a decision is asked for and carried out in one interval: cut, start, and what follows.
const TURNS: u32 = 4;
/// How much each plan may be searched for; more finds hardly better ones of so few models.
const WORK: u64 = 200_000;
/// Changes of what is forecast that are not worth a decision, as a part of it.
const SAME: f64 = 0.005;

/// Why a fleet could not follow.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// A claim about requests was broken.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// There is no room, or no such slice.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

struct Follow<'a> {
    study: &'a Study,
    fleet: &'a SimFleet,
    problem: plan::Problem,
    live: LiveFleet,
    lookups: Lookups<'a>,
    demands: Vec<Demand>,
    /// What was last decided for.
    decided: Vec<f64>,
    consolidated: Moment,
    busy_gpu_s: f64,
    /// By model, rows and batches.
    batches: Vec<(f64, f64)>,
    told: FollowingSummary,
}

/// Runs `study`, whose GPUs are `fleet`'s.
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
        let used = follow.live.gpus_used() as f64;
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
        let rule = |model: &crate::fleet::SimModel| {
            Demand::new(Rule { slo: model.settings.objective, ..Rule::default() })
        };
        let step = study.interval.as_secs_f64();
        let first: Vec<f64> = offered(fleet, (0.0, step)).into_iter().map(with_room).collect();
        let mut problem = problem(study, &first);
        problem.rules.work = WORK;
        let mut follow = Self {
            study,
            fleet,
            problem,
            live: LiveFleet::new(study),
            lookups: Lookups::new(study, fleet),
            demands: fleet.models.iter().map(rule).collect(),
            decided: vec![0.0; first.len()],
            consolidated: Moment::default(),
            busy_gpu_s: 0.0,
            batches: vec![(0.0, 0.0); fleet.models.len()],
            told: FollowingSummary::default(),
        };
        // What is asked at first is served from the first: what came before is not looked at.
        follow.decide(&first, Moment::default())?;
        follow.live.all_ready();
        follow.told = FollowingSummary::default();
        Ok(follow)
    }

    /// How every model's requests of one interval end; then what is to be otherwise.
    fn interval(&mut self, span: (f64, f64)) -> Result<Vec<Flow>, FollowError> {
        let lasts = span.1 - span.0;
        let now = Moment::default() + Duration::from_secs_f64(span.1);
        let rates = offered(self.fleet, span);
        let began = Moment::default() + Duration::from_secs_f64(span.0);
        let serving = self.live.serving(rates.len(), began);
        let mut flows = Vec::with_capacity(rates.len());
        let mut wanted = Vec::with_capacity(rates.len());
        for (model, rate) in rates.iter().enumerate() {
            let (going, load) = self.lookups.going(&serving[model], *rate)?;
            let came = rate * lasts;
            let parts: f64 = serving[model].iter().map(|one| one.part).sum();
            self.busy_gpu_s += parts * load.min(1.0) * lasts;
            self.batches[model].0 += came * going.in_time;
            self.batches[model].1 += came * going.in_time / going.batch.max(1.0);
            let flow = Flow::new(came, came * going.in_time, came * going.late);
            let seen = Seen {
                arrived: came.round() as u64,
                late: (came * (1.0 - going.in_time)).round() as u64,
                waiting: 0,
            };
            flows.push(flow);
            let demand = &mut self.demands[model];
            demand.observe(seen, now);
            let provided: f64 = serving[model].iter().map(|one| one.capacity_rps).sum();
            let load = self.fleet.terms.delays.load(self.fleet.models[model].memory_mib);
            wanted.push(demand.forecast(provided, load, now).rate_rps);
        }
        self.decide(&wanted, now)?;
        Ok(flows)
    }

    /// Has the fleet become what `wanted` asks for, as far as can be begun now.
    fn decide(&mut self, wanted: &[f64], now: Moment) -> Result<(), FollowError> {
        let consolidate = now.since(self.consolidated) >= CONSOLIDATE;
        let same = |(wanted, decided): (&f64, &f64)| (wanted - decided).abs() <= SAME * decided;
        if wanted.iter().zip(&self.decided).all(same) && !consolidate && self.live.is_settled() {
            return Ok(());
        }
        self.decided = wanted.to_vec();
        if consolidate {
            self.consolidated = now;
        }
        for (model, wanted) in self.problem.models.iter_mut().zip(wanted) {
            model.demand_rps = *wanted;
        }
        for _ in 0..TURNS {
            let decision = place(&Snapshot {
                models: self.problem.models.clone(),
                gpus: self.live.gpus().to_vec(),
                rules: self.problem.rules,
                pins: Vec::new(),
                consolidate,
                last: self.live.target().clone(),
            });
            let steps: Vec<Action> = decision.now().map(|step| step.action.clone()).collect();
            let none = steps.is_empty();
            self.live.aim(decision.target);
            for action in steps {
                self.count(&action);
                self.live.carry_out(action, self.fleet, now);
            }
            if none {
                break;
            }
        }
        Ok(())
    }

    fn count(&mut self, action: &Action) {
        match action {
            Action::Cut { .. } => self.told.cuts += 1,
            Action::Start { .. } => self.told.starts += 1,
            Action::Stop { .. } => self.told.stops += 1,
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
        let last = Moment::default() + self.fleet.terms.duration;
        let serving = self.live.serving(self.fleet.models.len(), last);
        for (index, model) in summary.models.iter_mut().enumerate() {
            model.replicas = serving[index].len();
            model.mean_batch = self.batches[index].0 / self.batches[index].1.max(1.0);
        }
        summary.gpus_used = self.live.gpus_used();
        summary.replicas = self.live.replicas();
        summary.following = Some(self.told);
        summary.close();
        Ok(())
    }
}

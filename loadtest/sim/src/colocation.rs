//! Training beside inference: what inference does not need at the moment is lent to jobs.
//!
//! Inference has whole GPUs, alike, and needs the fewest that keep its objectives at the rate of
//! the interval. What it lacks when its need rises, until the models are loaded, costs requests.

use std::time::Duration;

use policy::{loan::Loaning, moment::Moment};

use crate::{
    claims,
    fleet::SimFleet,
    rates::{Flow, Need, Needs},
    study::{Study, training::Training},
    summary::{self, Point, Summary, TrainingSummary},
    training::{self, Report, Rise, Setup},
};

const POINTS: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    #[error(transparent)]
    Requests(#[from] claims::Broken),
    #[error(transparent)]
    Loans(#[from] training::Broken),
}

struct Step {
    span: (f64, f64),
    need: Need,
}

pub fn run(study: &Study, training: &Training, fleet: &SimFleet) -> Result<Summary, BesideError> {
    let mut needs = Needs::new(fleet)?;
    let steps = steps(study, &needs);
    let at = |step: &Step| Moment::default() + Duration::from_secs_f64(step.span.0);
    let course: Vec<(Moment, u32)> =
        steps.iter().map(|step| (at(step), step.need.replicas)).collect();
    let lends = training.loans != Loaning::None && !fleet.models.is_empty();
    let own = fleet.gpus.len() as u32;
    let (jobs, tenants) = training::whole_jobs(&training.jobs);
    let report = training::run(Setup {
        jobs: &jobs,
        tenants: &tenants,
        slices: training::whole_gpus(training.gpus + if lends { own } else { 0 }),
        inference: if lends { &course } else { &[] },
        rules: training.rules(),
        habits: training.habits(),
    })?;
    let mut served = Served::new(fleet, training);
    for step in &steps {
        let flows = if lends {
            served.lent(&mut needs, step, &report.rises)?
        } else {
            needs.flow(&step.need, own, step.span.1 - step.span.0)?
        };
        served.add(step, flows);
    }
    Ok(served.close(study, &steps, training, &report))
}

fn steps(study: &Study, needs: &Needs<'_>) -> Vec<Step> {
    let total = study.terms.duration.as_secs_f64();
    let each = study.interval.as_secs_f64().min(total);
    let step = |index: usize| {
        let span = (index as f64 * each, ((index + 1) as f64 * each).min(total));
        Step { span, need: needs.of(span) }
    };
    (0..(total / each).ceil() as usize).map(step).collect()
}

struct Served<'a> {
    fleet: &'a SimFleet,
    /// How long a GPU that was given to inference does not serve yet.
    load_s: f64,
    round_s: f64,
    flows: Vec<Flow>,
    timeline: Vec<(f64, Flow)>,
}

impl<'a> Served<'a> {
    fn new(fleet: &'a SimFleet, training: &Training) -> Self {
        let largest = fleet.models.iter().map(|model| model.memory_mib).max().unwrap_or(0);
        Self {
            fleet,
            load_s: fleet.terms.delays.load(largest).as_secs_f64(),
            round_s: training.habits.round.as_secs_f64(),
            flows: vec![Flow::default(); fleet.models.len()],
            timeline: Vec::new(),
        }
    }

    /// One interval in which inference had what it needed, except where its need had just risen.
    fn lent(
        &self,
        needs: &mut Needs<'_>,
        step: &Step,
        rises: &[Rise],
    ) -> Result<Vec<Flow>, claims::Broken> {
        let (from, to) = step.span;
        let seconds = |rise: &Rise| rise.at.micros() as f64 / 1e6;
        let first = rises.partition_point(|rise| seconds(rise) < from);
        let mut left = to - from;
        let mut flows = vec![Flow::default(); self.fleet.models.len()];
        let mut serve = |replicas: u32, lasts: f64| -> Result<(), claims::Broken> {
            let lasts = lasts.min(left);
            left -= lasts;
            let parts = needs.flow(&step.need, replicas, lasts)?;
            flows.iter_mut().zip(parts).for_each(|(flow, part)| flow.add(part));
            Ok(())
        };
        for rise in rises[first..].iter().take_while(|rise| seconds(rise) < to) {
            serve(rise.before, self.load_s.min(self.round_s))?;
            serve(rise.has, (self.round_s - self.load_s).max(0.0))?;
        }
        serve(step.need.replicas, f64::INFINITY)?;
        Ok(flows)
    }

    fn add(&mut self, step: &Step, flows: Vec<Flow>) {
        let mut all = Flow::default();
        let counts = step.span.0 >= self.fleet.terms.warmup.as_secs_f64();
        for (total, flow) in self.flows.iter_mut().zip(flows) {
            all.add(flow);
            if counts {
                total.add(flow);
            }
        }
        self.timeline.push((step.span.1 - step.span.0, all));
    }

    fn close(self, study: &Study, steps: &[Step], training: &Training, report: &Report) -> Summary {
        let mut summary = summary::blank(study, self.fleet);
        for (model, flow) in summary.models.iter_mut().zip(&self.flows) {
            model.ends = flow.ends();
        }
        let mut at_s = 0.0;
        for some in self.timeline.chunks(self.timeline.len().div_ceil(POINTS).max(1)) {
            let mut sum = Flow::default();
            some.iter().for_each(|(_, flow)| sum.add(*flow));
            let lasts: f64 = some.iter().map(|(seconds, _)| seconds).sum();
            let (offered_rps, in_time_rps) = (sum.offered / lasts, sum.in_time / lasts);
            summary.timeline.push(Point { at_s: at_s + lasts / 2.0, offered_rps, in_time_rps });
            at_s += lasts;
        }
        summary.events = steps.len() as u64;
        summary.gpus += training.gpus as usize;
        summary.gpus_used = summary.gpus;
        let span_s = report.span_h * 3600.0;
        let needed: f64 = steps
            .iter()
            .map(|step| {
                f64::from(step.need.replicas) * (step.span.1.min(span_s) - step.span.0).max(0.0)
            })
            .sum();
        let busy = report.busy_h + if self.fleet.models.is_empty() { 0.0 } else { needed / 3600.0 };
        summary.utilisation = busy / (summary.gpus as f64 * report.span_h).max(1e-9);
        summary.training = Some(TrainingSummary::new(training, report));
        summary.close();
        summary
    }
}

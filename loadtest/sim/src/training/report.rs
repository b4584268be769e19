//! What a run was like for jobs, tenants and inference.

use std::{collections::HashMap, time::Duration};

use policy::{
    loan::{Account, Job, JobId, Tenant, Use, accrue},
    moment::Moment,
};

const POINTS: usize = 400;

#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub jobs: usize,
    /// From submission to end, in hours: the mean.
    pub completion_h: f64,
    /// The same, exceeded by one in a hundred.
    pub completion_p99_h: f64,
    pub completion_p50_h: f64,
    pub queueing_h: f64,
    /// The longest time from submission to the first start, in hours.
    pub longest_wait_h: f64,
    pub preemptions: u64,
    /// Those, and shrinks, for inference.
    pub reclaims: u64,
    pub resizes: u64,
    /// GPU-hours of work done twice.
    pub lost_h: f64,
    pub busy_h: f64,
    pub span_h: f64,
    /// Slice-hours that inference needed and did not have.
    pub short_h: f64,
    /// Jain's index over what tenants had of what they deserved: 1 is even.
    pub jain: f64,
    pub tenants: Vec<TenantReport>,
    pub rises: Vec<Rise>,
    pub course: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rise {
    pub at: Moment,
    pub before: u32,
    /// Slices it was given at once.
    pub has: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub at: Moment,
    pub inference: f64,
    pub training: f64,
    pub waiting: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TenantReport {
    pub name: String,
    /// What it had of what it deserved while it wanted it.
    pub ratio: f64,
    /// Its jobs' mean completion time, in hours.
    pub completion_h: f64,
}

impl Report {
    pub fn worst(&self) -> f64 {
        self.tenants.iter().map(|tenant| tenant.ratio).fold(f64::INFINITY, f64::min)
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) preemptions: u64,
    pub(super) reclaims: u64,
    pub(super) resizes: u64,
    pub(super) lost_s: f64,
    pub(super) service_s: f64,
    given_s: f64,
    busy_s: f64,
    span_s: f64,
    short_s: f64,
    first_start: HashMap<JobId, Moment>,
    /// Completion and queueing time, and the tenant.
    ended: Vec<(Duration, Duration, usize)>,
    accounts: Vec<Account>,
    course: Vec<Sample>,
}

impl Tally {
    pub(super) fn new(tenants: usize) -> Self {
        Self { accounts: vec![Account::default(); tenants], ..Self::default() }
    }

    pub(super) fn started(&mut self, job: JobId, now: Moment) {
        self.first_start.entry(job).or_insert(now);
    }

    pub(super) fn ended(&mut self, job: &Job, at: Moment) {
        let start = self.first_start.remove(&job.id).unwrap_or(at);
        let (took, waited) = (at.since(job.submitted), start.since(job.submitted));
        self.ended.push((took, waited, job.ask.tenant));
    }

    pub(super) fn account(&mut self, uses: &[Use], capacity: f64, round: Duration, short: u32) {
        let bare = Tenant { share: 1.0, quota: u32::MAX, account: Account::default() };
        let mut fresh = vec![bare; uses.len()];
        accrue(&mut fresh, uses, capacity, round);
        for (total, tenant) in self.accounts.iter_mut().zip(fresh) {
            total.received += tenant.account.received;
            total.deserved += tenant.account.deserved;
        }
        self.short_s += f64::from(short) * round.as_secs_f64();
    }

    pub(super) fn busy(&mut self, gpus: f64, round: Duration) {
        self.busy_s += gpus * round.as_secs_f64();
        self.span_s += round.as_secs_f64();
    }

    pub(super) fn sample(&mut self, sample: Sample) {
        self.course.push(sample);
    }

    /// What slices gave is what jobs attained.
    pub(super) fn conserved(&mut self, given: f64) -> Result<(), String> {
        self.given_s += given;
        let (given, attained) = (self.given_s, self.service_s);
        if (given - attained).abs() > 1e-6 * given.max(1.0) {
            return Err(format!("slices gave {given} GPU-seconds, jobs attained {attained}"));
        }
        Ok(())
    }

    pub(super) fn report(self, names: &[String]) -> Report {
        let hours = |time: &Duration| time.as_secs_f64() / 3600.0;
        let mean = |times: &mut dyn Iterator<Item = f64>| {
            let (mut sum, mut count) = (0.0, 0usize);
            times.for_each(|time| (sum, count) = (sum + time, count + 1));
            sum / count.max(1) as f64
        };
        let mut took: Vec<f64> = self.ended.iter().map(|(took, _, _)| hours(took)).collect();
        took.sort_by(f64::total_cmp);
        let quantile = |part: f64| {
            let at = (took.len() as f64 * part) as usize;
            took.get(at.min(took.len().saturating_sub(1))).copied().unwrap_or(0.0)
        };
        let tenant = |(index, name): (usize, &String)| TenantReport {
            name: name.clone(),
            ratio: self.accounts[index].ratio(),
            completion_h: mean(
                &mut self
                    .ended
                    .iter()
                    .filter(|(_, _, of)| *of == index)
                    .map(|(took, _, _)| hours(took)),
            ),
        };
        let tenants: Vec<TenantReport> = names.iter().enumerate().map(tenant).collect();
        Report {
            jobs: took.len(),
            completion_h: mean(&mut took.iter().copied()),
            completion_p99_h: quantile(0.99),
            completion_p50_h: quantile(0.5),
            queueing_h: mean(&mut self.ended.iter().map(|(_, waited, _)| hours(waited))),
            longest_wait_h: self
                .ended
                .iter()
                .map(|(_, waited, _)| hours(waited))
                .fold(0.0, f64::max),
            preemptions: self.preemptions,
            reclaims: self.reclaims,
            resizes: self.resizes,
            lost_h: self.lost_s / 3600.0,
            busy_h: self.busy_s / 3600.0,
            span_h: self.span_s / 3600.0,
            short_h: self.short_s / 3600.0,
            jain: jain(tenants.iter().map(|tenant| tenant.ratio)),
            tenants,
            rises: Vec::new(),
            course: means(&self.course),
        }
    }
}

/// At most [`POINTS`] means of neighbours.
fn means(course: &[Sample]) -> Vec<Sample> {
    let mean = |samples: &[Sample]| {
        let of =
            |part: fn(&Sample) -> f64| samples.iter().map(part).sum::<f64>() / samples.len() as f64;
        Sample {
            at: samples[0].at,
            inference: of(|sample| sample.inference),
            training: of(|sample| sample.training),
            waiting: of(|sample| sample.waiting),
        }
    };
    course.chunks(course.len().div_ceil(POINTS).max(1)).map(mean).collect()
}

/// Jain's index: 1 if all are equal, 1/n if one has it all.
fn jain(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut squares, mut count) = (0.0, 0.0, 0.0);
    values.for_each(|value| {
        (sum, squares, count) = (sum + value, squares + value * value, count + 1.0)
    });
    if squares > 0.0 { sum * sum / (count * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn jains_index_is_1_for_equals_and_1_over_n_for_a_monopoly() {
        assert!((jain([3.0, 3.0, 3.0].into_iter()) - 1.0).abs() < 1e-9);
        assert!((jain([1.0, 0.0, 0.0, 0.0].into_iter()) - 0.25).abs() < 1e-9);
    }
}

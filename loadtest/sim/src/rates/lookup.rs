//! How a replica fares under a load, from short runs of requests, each made once.

use std::{sync::Arc, time::Duration};

use loadtest::{
    arrivals::{Process, Shape, Spacing},
    plan::Source,
};
use mig::Geometry;
use policy::{dispatch::Class, rule::Batching};

use super::Kind;
use crate::{
    claims::Broken,
    fleet::{SimFleet, SimModel, SimReplica, Stream, Terms, Times},
    world::{self, Checks},
};

/// Loads at which runs are made, as parts of capacity; what lies between is on a straight line.
const LOADS: [f64; 14] = [0.05, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0];
/// Slices that serve together in a run: more share bursts better, and beyond the last no more.
const POOLS: [u32; 4] = [1, 2, 4, 8];
/// How long a run is counted, in objectives, unless that is more requests than needed; and the least.
const OBJECTIVES: u32 = 60;
const LEAST_OBJECTIVES: u32 = 12;
/// Requests that are enough, and those that are needed.
const ENOUGH: f64 = 30_000.0;
const NEEDED: f64 = 4_000.0;
/// The part of that before counting.
const WARMUP: u32 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Going {
    pub(crate) in_time: f64,
    pub(crate) late: f64,
    pub(crate) batch: f64,
}

struct Runs {
    objective: Duration,
    batching: Batching,
    times: Arc<Times>,
    sharers: u32,
    pool: u32,
    by_load: [Option<Going>; LOADS.len()],
}

pub(crate) struct Lookup<'a> {
    fleet: &'a SimFleet,
    runs: Vec<Runs>,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(fleet: &'a SimFleet) -> Self {
        Self { fleet, runs: Vec::new() }
    }

    pub(crate) fn going(&mut self, kind: &Kind, count: f64, load: f64) -> Result<Going, Broken> {
        let slices = count / f64::from(kind.sharers.max(1));
        let pool = POOLS.iter().rev().find(|pool| f64::from(**pool) <= slices).unwrap_or(&1);
        let index = self.index(kind, *pool);
        let above = LOADS.partition_point(|known| *known < load);
        let Some(high) = LOADS.get(above) else {
            // Past all runs the same number is served of ever more.
            let last = self.at(index, kind, LOADS.len() - 1)?;
            let part = LOADS[LOADS.len() - 1] / load;
            return Ok(Going { in_time: last.in_time * part, late: last.late * part, ..last });
        };
        let more = self.at(index, kind, above)?;
        let Some(below) = above.checked_sub(1) else { return Ok(more) };
        let less = self.at(index, kind, below)?;
        let along = (load - LOADS[below]) / (high - LOADS[below]);
        let mix = |from: f64, to: f64| from + along * (to - from);
        Ok(Going {
            in_time: mix(less.in_time, more.in_time),
            late: mix(less.late, more.late),
            batch: mix(less.batch, more.batch),
        })
    }

    fn index(&mut self, kind: &Kind, pool: u32) -> usize {
        let SimModel { settings, batching, .. } = &self.fleet.models[kind.model];
        let same = |runs: &Runs| {
            runs.pool == pool
                && runs.sharers == kind.sharers
                && runs.objective == settings.objective
                && runs.batching == *batching
                && (Arc::ptr_eq(&runs.times, &kind.times) || runs.times == kind.times)
        };
        self.runs.iter().position(same).unwrap_or_else(|| {
            self.runs.push(Runs {
                objective: settings.objective,
                batching: *batching,
                times: Arc::clone(&kind.times),
                sharers: kind.sharers,
                pool,
                by_load: [None; LOADS.len()],
            });
            self.runs.len() - 1
        })
    }

    fn at(&mut self, index: usize, kind: &Kind, load: usize) -> Result<Going, Broken> {
        if let Some(going) = self.runs[index].by_load[load] {
            return Ok(going);
        }
        let going = self.try_out(kind, self.runs[index].pool, LOADS[load])?;
        self.runs[index].by_load[load] = Some(going);
        Ok(going)
    }

    fn try_out(&self, kind: &Kind, pool: u32, load: f64) -> Result<Going, Broken> {
        if kind.capacity_rps == 0.0 {
            return Ok(Going::default());
        }
        let gpu = mig::kinds()[0].whole();
        let whole = Geometry::empty(&mig::kinds()[0]).with(gpu);
        let whole = whole.expect("a GPU has room for all of itself");
        let model = self.fleet.models[kind.model].clone();
        let objective = model.settings.objective;
        let rate_rps = load * kind.capacity_rps * f64::from(pool * kind.sharers);
        let until = |requests: f64| Duration::from_secs_f64(requests / rate_rps);
        let counted = (objective * OBJECTIVES).min(until(ENOUGH));
        let counted = counted.max(objective * LEAST_OBJECTIVES).max(until(NEEDED));
        let warmup = counted / WARMUP;
        let replica = |index: u32| SimReplica {
            model: 0,
            gpu: (index / kind.sharers) as usize,
            slice: 0,
            process: (index % kind.sharers) as usize,
            times: Arc::clone(&kind.times),
        };
        let process = Process { rate_rps, spacing: Spacing::Poisson, shape: Shape::Flat };
        let stream = Stream {
            model: 0,
            source: Source::Process(process),
            tenant: 0,
            class: Class::Interactive,
            shapes: 1,
        };
        let fleet = SimFleet {
            models: vec![SimModel { weights: vec![1.0], memory_mib: 1, ..model }],
            gpus: vec![whole; pool as usize],
            replicas: (0..pool * kind.sharers).map(replica).collect(),
            streams: vec![stream],
            faults: Vec::new(),
            terms: Terms { duration: warmup + counted, warmup, ..self.fleet.terms },
        };
        let report = world::run(&fleet, Checks::default())?;
        let total = report.total();
        let offered = total.offered.max(1) as f64;
        Ok(Going {
            in_time: total.in_time as f64 / offered,
            late: total.late as f64 / offered,
            batch: report.mean_batch(),
        })
    }
}

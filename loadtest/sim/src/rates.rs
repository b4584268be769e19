//! Large fleets over long times, interval by interval.
//!
//! Ten thousand GPUs answer some 10^11 requests a day, more than can be gone through one by one.
//! Here the rate of each interval is spread over a model's replicas by their capacity, and how that
//! goes is looked up: for every kind of replica and load in question a short run of requests is
//! simulated, once, on the same machine as everything else. GPUs that are alike count once, so a
//! day costs what its models and layouts cost, not its GPUs.
//!
//! Queues that outlive an interval, bursts within one, and the network are not seen.

mod lookup;
mod needs;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use loadtest::plan::Source;
use simgpu::{Busy, Load, Shared};

pub(crate) use self::lookup::{Going, Lookup};
pub(crate) use self::needs::{Need, Needs};
use crate::{
    claims::Broken,
    fleet::{Fault, SimFleet, Times, Trouble},
    study::Study,
    summary::{self, Point, Summary},
};

const SAMPLES: u32 = 8;
const POINTS: usize = 200;
/// A worker that was silent this long is trusted no more.
const SILENCE: Duration = Duration::from_secs(3);

/// GPUs that are cut and used alike.
struct Layout {
    count: f64,
    /// By slice, its compute slices and the kinds of replica on it.
    slices: Vec<(u8, Vec<usize>)>,
    shared: Shared,
}

/// Replicas alike: a model's, on one profile, among as many sharers.
pub(crate) struct Kind {
    pub(crate) model: usize,
    pub(crate) times: Arc<Times>,
    pub(crate) sharers: u32,
    pub(crate) capacity_rps: f64,
}

struct Fluid<'a> {
    fleet: &'a SimFleet,
    kinds: Vec<Kind>,
    layouts: Vec<Layout>,
    /// By GPU.
    layout_of: Vec<usize>,
    lookup: Lookup<'a>,
    /// By model, load over capacity in the interval before.
    loads: Vec<f64>,
}

pub fn run(study: &Study, fleet: &SimFleet) -> Result<Summary, Broken> {
    let mut fluid = Fluid::new(fleet);
    let mut summary = summary::blank(study, fleet);
    let total = fleet.terms.duration.as_secs_f64();
    let step = study.interval.as_secs_f64().min(total);
    let intervals = (total / step).ceil() as usize;
    let each = intervals.div_ceil(POINTS).max(1);
    let mut sums = vec![Flow::default(); fleet.models.len()];
    let mut batches = vec![(0.0, 0.0); fleet.models.len()];
    let mut busy = 0.0;
    let mut point = Flow::default();
    for index in 0..intervals {
        let span = (index as f64 * step, ((index + 1) as f64 * step).min(total));
        let flows = fluid.interval(span)?;
        busy += fluid.busy() * (span.1 - span.0);
        for (model, (flow, batch)) in flows.into_iter().enumerate() {
            point.add(flow);
            if span.0 >= fleet.terms.warmup.as_secs_f64() {
                sums[model].add(flow);
                batches[model].0 += flow.in_time + flow.late;
                batches[model].1 += (flow.in_time + flow.late) / batch.max(1.0);
            }
        }
        if (index + 1) % each == 0 || index + 1 == intervals {
            let from = (index / each * each) as f64 * step;
            let seconds = (span.1 - from).max(1e-9);
            summary.timeline.push(Point {
                at_s: from + seconds / 2.0,
                offered_rps: point.offered / seconds,
                in_time_rps: point.in_time / seconds,
            });
            point = Flow::default();
        }
    }
    for ((model, flow), (rows, count)) in summary.models.iter_mut().zip(sums).zip(batches) {
        model.ends = flow.ends();
        model.mean_batch = rows / f64::max(count, 1.0);
    }
    summary.utilisation = busy / (summary.gpus_used as f64 * total).max(1e-9);
    summary.events = intervals as u64;
    summary.close();
    Ok(summary)
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) offered: f64,
    pub(crate) in_time: f64,
    late: f64,
    failed: f64,
}

impl Flow {
    pub(crate) fn new(offered: f64, in_time: f64, late: f64) -> Self {
        Self { offered, in_time, late, failed: 0.0 }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.offered += other.offered;
        self.in_time += other.in_time;
        self.late += other.late;
        self.failed += other.failed;
    }

    pub(crate) fn ends(self) -> summary::Ends {
        let [offered, in_time, late, failed] =
            [self.offered, self.in_time, self.late, self.failed].map(|count| count.round() as u64);
        let refused = offered.saturating_sub(in_time + late + failed);
        summary::Ends { offered, in_time, late, refused, failed }
    }
}

impl<'a> Fluid<'a> {
    fn new(fleet: &'a SimFleet) -> Self {
        let mut by_slice: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        let mut processes: BTreeMap<(usize, usize), BTreeMap<usize, u32>> = BTreeMap::new();
        for replica in &fleet.replicas {
            let slice = processes.entry((replica.gpu, replica.slice)).or_default();
            *slice.entry(replica.process).or_default() += 1;
        }
        let mut kinds: Vec<Kind> = Vec::new();
        let mut known: BTreeMap<(usize, *const Times, u32), usize> = BTreeMap::new();
        for replica in &fleet.replicas {
            let place = (replica.gpu, replica.slice);
            let turns = processes[&place][&replica.process];
            let key = (replica.model, Arc::as_ptr(&replica.times), turns);
            let kind = *known.entry(key).or_insert_with(|| {
                let sharers = processes[&place].len() as u32;
                let objective = fleet.models[replica.model].settings.objective;
                let times = match turns {
                    1 => Arc::clone(&replica.times),
                    _ => Arc::new(replica.times.in_turns(turns)),
                };
                let capacity_rps = capacity(&times, sharers, objective);
                kinds.push(Kind { model: replica.model, times, sharers, capacity_rps });
                kinds.len() - 1
            });
            by_slice.entry(place).or_default().push(kind);
        }
        let mut layouts: Vec<Layout> = Vec::new();
        let mut alike: BTreeMap<(String, String, Vec<Vec<usize>>), usize> = BTreeMap::new();
        let mut layout_of = Vec::with_capacity(fleet.gpus.len());
        for (gpu, geometry) in fleet.gpus.iter().enumerate() {
            let on = |slice| by_slice.get(&(gpu, slice)).cloned().unwrap_or_default();
            let residents: Vec<Vec<usize>> = (0..geometry.positions().len()).map(on).collect();
            let key = (geometry.kind().name.clone(), geometry.to_string(), residents.clone());
            let layout = *alike.entry(key).or_insert_with(|| {
                let compute = geometry.positions().iter().map(|one| one.profile().compute_slices);
                let slices = compute.zip(residents).collect();
                layouts.push(Layout { count: 0.0, slices, shared: Shared::of(geometry.kind()) });
                layouts.len() - 1
            });
            layouts[layout].count += 1.0;
            layout_of.push(layout);
        }
        let loads = vec![0.0; fleet.models.len()];
        Self { fleet, kinds, layouts, layout_of, lookup: Lookup::new(fleet), loads }
    }

    fn interval(&mut self, span: (f64, f64)) -> Result<Vec<(Flow, f64)>, Broken> {
        let seconds = span.1 - span.0;
        let offered = offered(self.fleet, span);
        let capacities = self.capacities(span);
        let mut totals = vec![0.0; self.fleet.models.len()];
        let mut counts = vec![0.0; self.fleet.models.len()];
        for (kind, (count, capacity)) in self.kinds.iter().zip(&capacities) {
            totals[kind.model] += capacity;
            counts[kind.model] += count;
        }
        let down = self.router_down(span);
        for (model, rps) in offered.iter().enumerate() {
            self.loads[model] =
                if totals[model] > 0.0 { rps / totals[model] } else { f64::INFINITY };
        }
        let mut flows: Vec<(Flow, f64)> = offered
            .iter()
            .map(|rps| (Flow { offered: rps * seconds, ..Flow::default() }, 0.0))
            .collect();
        for (index, (_, capacity)) in capacities.iter().enumerate() {
            let Kind { model, .. } = self.kinds[index];
            if totals[model] == 0.0 || offered[model] == 0.0 {
                continue;
            }
            let part = capacity / totals[model];
            let Going { in_time, late, batch } =
                self.lookup.going(&self.kinds[index], counts[model], self.loads[model])?;
            let (flow, mean_batch) = &mut flows[model];
            flow.in_time += flow.offered * (1.0 - down) * part * in_time;
            flow.late += flow.offered * (1.0 - down) * part * late;
            *mean_batch += part * batch;
        }
        for (flow, _) in &mut flows {
            flow.failed = flow.offered * down;
        }
        Ok(flows)
    }

    /// By kind of replica, how many there are and what they can serve together.
    fn capacities(&self, span: (f64, f64)) -> Vec<(f64, f64)> {
        let mut found = vec![(0.0, 0.0); self.kinds.len()];
        for layout in &self.layouts {
            for (slice, (_, residents)) in layout.slices.iter().enumerate() {
                let slower = self.slowdown(layout, slice);
                for kind in residents {
                    found[*kind].0 += layout.count;
                    found[*kind].1 += layout.count * self.kinds[*kind].capacity_rps / slower;
                }
            }
        }
        for fault in &self.fleet.faults {
            let (gpu, lost) = match fault.trouble {
                Trouble::DeadGpu { gpu } => (gpu, self.overlap(fault, span, Duration::ZERO)),
                Trouble::LostWorker { gpu } => (gpu, self.overlap(fault, span, SILENCE)),
                Trouble::SlowGpu { gpu, factor } => {
                    (gpu, self.overlap(fault, span, Duration::ZERO) * (1.0 - 1.0 / factor))
                }
                Trouble::SlowNetwork { .. }
                | Trouble::StaleReports { .. }
                | Trouble::RouterRestart => continue,
            };
            for (_, residents) in &self.layouts[self.layout_of[gpu]].slices {
                for kind in residents {
                    let found = &mut found[*kind].1;
                    *found = (*found - lost * self.kinds[*kind].capacity_rps).max(0.0);
                }
            }
        }
        found
    }

    /// How much slower a slice is for what its neighbours did in the interval before.
    fn slowdown(&self, layout: &Layout, slice: usize) -> f64 {
        let load = |residents: &[usize]| {
            let first = residents.first().map(|kind| self.kinds[*kind].model);
            first.map_or(Load::INFERENCE, |model| self.fleet.models[model].load)
        };
        let busy = |(compute_slices, residents): &(u8, Vec<usize>), duty: f64| {
            let load = load(residents).during(duty);
            (!residents.is_empty()).then_some(Busy { compute_slices: *compute_slices, load })
        };
        let (compute_slices, residents) = &layout.slices[slice];
        let own = Busy { compute_slices: *compute_slices, load: load(residents) };
        let others = layout.slices.iter().enumerate().filter(|(index, _)| *index != slice);
        let others = others.filter_map(|(_, other)| busy(other, self.duty(&other.1)));
        layout.shared.slowdown(own, others)
    }

    fn duty(&self, residents: &[usize]) -> f64 {
        let loads = residents.iter().map(|kind| self.loads[self.kinds[*kind].model].min(1.0));
        loads.sum::<f64>() / residents.len().max(1) as f64
    }

    /// GPUs' worth of compute that is busy.
    fn busy(&self) -> f64 {
        let layouts = self.layouts.iter().map(|layout| {
            let whole: u32 = layout.slices.iter().map(|(compute, _)| u32::from(*compute)).sum();
            let parts = layout.slices.iter().map(|(compute, residents)| {
                f64::from(*compute) / f64::from(whole.max(1)) * self.duty(residents)
            });
            layout.count * parts.sum::<f64>()
        });
        layouts.sum()
    }

    fn router_down(&self, span: (f64, f64)) -> f64 {
        let restarts = self.fleet.faults.iter().filter(|one| one.trouble == Trouble::RouterRestart);
        restarts.map(|fault| self.overlap(fault, span, Duration::ZERO)).sum::<f64>().min(1.0)
    }

    /// The part of an interval during which a fault is felt, which begins `after` it does.
    fn overlap(&self, fault: &Fault, (from, to): (f64, f64), after: Duration) -> f64 {
        let load = match fault.trouble {
            Trouble::DeadGpu { .. } => self.fleet.terms.delays.load(0),
            Trouble::SlowGpu { .. }
            | Trouble::LostWorker { .. }
            | Trouble::SlowNetwork { .. }
            | Trouble::StaleReports { .. }
            | Trouble::RouterRestart => Duration::ZERO,
        };
        let begins = (fault.at + after).as_secs_f64().max(from);
        let ends = (fault.at + fault.lasts + load).as_secs_f64().min(to);
        (ends - begins).max(0.0) / (to - from)
    }
}

pub(crate) fn offered(fleet: &SimFleet, (from, to): (f64, f64)) -> Vec<f64> {
    let mut rates = vec![0.0; fleet.models.len()];
    for stream in &fleet.streams {
        rates[stream.model] += match &stream.source {
            Source::Process(process) => {
                let at = |sample: u32| {
                    from + (to - from) * (f64::from(sample) + 0.5) / f64::from(SAMPLES)
                };
                let sum: f64 = (0..SAMPLES).map(|one| process.shape.factor(at(one))).sum();
                process.rate_rps * sum / f64::from(SAMPLES)
            }
            Source::List(list) => {
                let before =
                    |seconds: f64| list.partition_point(|at| at.as_secs_f64() < seconds) as f64;
                (before(to) - before(from)) / (to - from)
            }
        };
    }
    rates
}

/// Requests per second at the best batch within the objective; 0 if there is none.
pub(crate) fn capacity(times: &Times, sharers: u32, objective: Duration) -> f64 {
    let most = objective.as_secs_f64() * 1e6;
    (1..=times.max_batch())
        .map(|rows| (rows, times.micros(rows, sharers)))
        .filter(|(_, micros)| *micros <= most)
        .map(|(rows, micros)| f64::from(rows) / micros * 1e6)
        .fold(0.0, f64::max)
}

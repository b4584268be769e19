//! How well slowdowns by neighbours are predicted, as the router would learn them.
//!
//! The predictor sees what a router sees: which models are on the other slices, what they are
//! declared to ask of the GPU, the part of the last second they were busy, and how long batches took.

use std::time::Duration;

use policy::{
    interference::{Draw, Gains, Interference, Runner, Scene, Times},
    moment::Moment,
};

use super::RequestWorld;

/// How quickly the part of the time a replica is busy is forgotten.
const MEMORY_S: f64 = 1.0;
/// Predictions before this are of one who knows nothing yet.
const EARLY: Duration = Duration::from_secs(5);
/// Predictions from here on are of one who has learned.
const LEARNED: Duration = Duration::from_secs(60);
/// Errors kept of each time.
const MOST: usize = 1 << 20;

/// The part of the time a replica was busy lately.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    part: f64,
    now: bool,
    as_of: Moment,
}

impl Busy {
    fn at(self, now: Moment) -> f64 {
        let kept = (-now.since(self.as_of).as_secs_f64() / MEMORY_S).exp();
        self.part * kept + if self.now { 1.0 - kept } else { 0.0 }
    }

    fn turn(&mut self, busy: bool, now: Moment) {
        *self = Self { part: self.at(now), now: busy, as_of: now };
    }
}

#[derive(Debug)]
pub(super) struct Slowdowns {
    learned: Interference,
    busy: Vec<Busy>,
    early: Vec<f64>,
    late: Vec<f64>,
}

impl Slowdowns {
    pub(super) fn new(replicas: usize) -> Self {
        let learned = Interference::new(Gains::default());
        let busy = vec![Busy::default(); replicas];
        Self { learned, busy, early: Vec::new(), late: Vec::new() }
    }

    pub(super) fn turn(&mut self, replica: usize, busy: bool, now: Moment) {
        self.busy[replica].turn(busy, now);
    }

    fn learn(&mut self, scene: &Scene<'_>, slower: f64, now: Moment) {
        let alone = Duration::from_millis(100);
        let times = Times { took: alone.mul_f64(slower), alone };
        let error = self.learned.observe(scene, times, now);
        let kept = match now.since(Moment::default()) {
            age if age < EARLY => &mut self.early,
            age if age >= LEARNED => &mut self.late,
            _ => return,
        };
        if kept.len() < MOST {
            kept.push(error);
        }
    }

    /// The median error at first, and once it has learned.
    pub(super) fn medians(self) -> [Option<f64>; 2] {
        [self.early, self.late].map(|mut errors| {
            errors.sort_by(f64::total_cmp);
            errors.get(errors.len() / 2).copied()
        })
    }
}

impl RequestWorld<'_> {
    /// Notes that a batch of `replica` took `slower` times as long as alone on the GPU.
    pub(super) fn feel(&mut self, replica: usize, slower: f64) {
        let Some(slowdowns) = &mut self.slowdowns else { return };
        let spec = &self.fleet.replicas[replica];
        let runner = |index: usize, busy: f64, part: f64| {
            let model = self.fleet.replicas[index].model;
            let simgpu::Load { power, pcie, tlb } = self.fleet.models[model].load;
            let load = Draw { power, bandwidth: tlb, pcie };
            Runner { model: model as u32, compute: part, busy, load }
        };
        let mut others = Vec::new();
        for (index, slice) in self.slices[spec.gpu].iter().enumerate() {
            if index != spec.slice {
                let busy = |member: usize| slowdowns.busy[member].at(self.now);
                others.extend(slice.members().map(|one| runner(one, busy(one), slice.part())));
            }
        }
        let own = runner(replica, 1.0, self.slices[spec.gpu][spec.slice].part());
        slowdowns.turn(replica, false, self.now);
        slowdowns.learn(&Scene { own, others: &others }, slower, self.now);
    }
}

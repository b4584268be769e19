//! How much replicas on one GPU slow each other, learned from what their batches take.

use std::{collections::BTreeMap, time::Duration};

use super::{World, asked::AskedReplica, sites::Sites};
use crate::{
    fleet::SliceName,
    interference::{Corrected, Draw, Gains, Interference, Runner, Scene, Times},
    moment::Moment,
};

/// How often what was seen is learned from.
const EVERY: Duration = Duration::from_secs(1);
/// A slice that works for less of the time says little about its neighbours.
const BUSY: f64 = 0.05;
/// No model is planned to be slower than this many times what was measured.
const MOST: f64 = 2.0;

#[derive(Clone, Debug)]
pub(super) struct Neighbours {
    interference: Interference,
    /// By slice, microseconds its processes have worked, and when that was.
    worked: BTreeMap<SliceName, (u64, Moment)>,
    /// By slice, the part of the time it works.
    busy: BTreeMap<SliceName, f64>,
    /// By model, how many times as long as measured it is expected to take.
    slowed: Vec<f64>,
    learned_at: Moment,
}

impl Neighbours {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            interference: Interference::new(Gains::default()),
            worked: BTreeMap::new(),
            busy: BTreeMap::new(),
            slowed: Vec::new(),
            learned_at: now,
        }
    }

    /// Notes how busy each slice is, at most once a second.
    pub(super) fn look(&mut self, world: &World) {
        let now = world.now;
        for worker in &world.workers {
            for slice in worker.gpus.iter().flat_map(|gpu| &gpu.slices) {
                let name = SliceName::of(&worker.name, &slice.label);
                let (before_us, at) =
                    *self.worked.entry(name.clone()).or_insert((slice.busy_us, now));
                let elapsed = now.since(at);
                if elapsed < EVERY {
                    continue;
                }
                let worked_us = slice.busy_us.saturating_sub(before_us);
                let part = worked_us as f64 / elapsed.as_micros() as f64;
                let busy = (part / f64::from(slice.processes.max(1))).min(1.0);
                self.busy.insert(name.clone(), busy);
                self.worked.insert(name, (slice.busy_us, now));
            }
        }
    }

    /// The part of the time that a slice works.
    pub(super) fn busy(&self, slice: &SliceName) -> f64 {
        self.busy.get(slice).copied().unwrap_or(0.0)
    }

    /// Learns from how long batches take beside their neighbours.
    pub(super) fn learn(
        &mut self,
        world: &World,
        sites: &Sites,
        replicas: &BTreeMap<u64, AskedReplica>,
    ) {
        let now = world.now;
        if now.since(self.learned_at) < EVERY {
            return;
        }
        self.learned_at = now;
        self.slowed = vec![1.0; world.models.len()];
        let runners = self.runners(sites, replicas);
        for (index, model) in world.models.iter().enumerate() {
            let seen = world.traffic.get(&model.name).into_iter().flat_map(|one| &one.slowdown);
            for (slice, slowdown) in seen {
                let Some((site, own)) = runners.get(&(slice.clone(), index)) else { continue };
                if own.busy < BUSY {
                    continue;
                }
                let beside = |((other, _), (at, _)): &(&(SliceName, usize), &(usize, Runner))| {
                    at == site && other != slice
                };
                let others: Vec<Runner> =
                    runners.iter().filter(beside).map(|(_, (_, runner))| *runner).collect();
                let scene = Scene { own: *own, others: &others };
                let alone = Duration::from_millis(100);
                let times = Times { took: alone.mul_f64(slowdown.clamp(1.0, 10.0)), alone };
                self.interference.observe(&scene, times, now);
                let expected = self.interference.slowdown(&scene, now).min(MOST);
                self.slowed[index] = self.slowed[index].max(expected);
            }
        }
    }

    /// Who is at work where: by slice and model, the GPU and the replica.
    fn runners(
        &self,
        sites: &Sites,
        replicas: &BTreeMap<u64, AskedReplica>,
    ) -> BTreeMap<(SliceName, usize), (usize, Runner)> {
        let mut runners = BTreeMap::new();
        for AskedReplica { site, spot, replica } in replicas.values() {
            let (on, Some(model)) = (&sites.all[*site], replica.model) else { continue };
            let spot = &on.spots[*spot];
            let compute = f64::from(spot.position.profile().compute_slices);
            let runner = Runner {
                model: u32::try_from(model).unwrap_or(u32::MAX),
                compute: compute / f64::from(on.kind.compute_slices),
                busy: self.busy(&spot.name),
                load: Draw::default(),
            };
            runners.insert((spot.name.clone(), model), (*site, runner));
        }
        runners
    }

    /// How many times as long as measured a model is expected to take.
    pub(super) fn slowdown(&self, model: usize) -> f64 {
        self.slowed.get(model).copied().unwrap_or(1.0)
    }

    /// What was learned, as far as it differs from what is predicted.
    pub(super) fn corrections(&self, now: Moment) -> Vec<Corrected> {
        self.interference.corrections(now)
    }

    /// Takes up what was learned so long ago.
    pub(super) fn recall(&mut self, learned: &[Corrected], away: Duration, now: Moment) {
        self.interference.recall(learned, away, now);
    }

    /// The median error of the last predictions; none before the first.
    pub(super) fn median_error(&self) -> Option<f64> {
        self.interference.median_error()
    }
}

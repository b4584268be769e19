//! How much replicas on one GPU slow each other, learned from what their dispatchers see.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use config::Config;
use policy::{
    fleet::Traffic,
    interference::{Corrected, Draw, Gains, Interference, Runner, Scene, Times},
    moment::Moment,
};

use super::{groups::Group, world::World};
use crate::fleet::{Seen, labelled};

/// How often what was seen is learned from.
const EVERY: Duration = Duration::from_secs(1);
/// A slice that works for less of the time says little about its neighbours.
const BUSY: f64 = 0.05;
/// No model is planned to be slower than this many times what was measured.
const MOST: f64 = 2.0;

/// What was learned of neighbours.
#[derive(Debug)]
pub(super) struct Neighbours {
    interference: Interference,
    /// By label of a slice: microseconds its processes have worked, and when that was.
    worked: HashMap<String, (u64, Moment)>,
    /// By label of a slice: the part of the time it works.
    busy: HashMap<String, f64>,
    /// By model, how many times as long as measured it is expected to take.
    slowed: Vec<f64>,
    learned_at: Moment,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            interference: Interference::new(Gains::default()),
            worked: HashMap::new(),
            busy: HashMap::new(),
            slowed: Vec::new(),
            learned_at: Moment::default(),
        }
    }
}

impl Neighbours {
    /// Notes how busy each slice is, at most once a second.
    pub(super) fn look(&mut self, seen: &[Seen], now: Moment) {
        for Seen { worker, report, .. } in seen {
            for slice in report.gpus.iter().flat_map(|gpu| &gpu.slices) {
                let label = labelled(worker, &slice.slice);
                let worked_us: u64 = slice.lanes.iter().map(|lane| lane.busy_us).sum();
                let (before_us, at) = *self.worked.entry(label.clone()).or_insert((worked_us, now));
                let elapsed = now.since(at);
                if elapsed < EVERY {
                    continue;
                }
                let lanes = slice.lanes.len().max(1) as f64;
                let part = worked_us.saturating_sub(before_us) as f64 / elapsed.as_micros() as f64;
                self.busy.insert(label.clone(), (part / lanes).min(1.0));
                self.worked.insert(label, (worked_us, now));
            }
        }
    }

    /// The part of the time that a slice works.
    pub(super) fn busy(&self, label: &str) -> f64 {
        self.busy.get(label).copied().unwrap_or(0.0)
    }

    /// Learns from how long batches take beside their neighbours.
    pub(super) fn learn(
        &mut self,
        (config, traffic): (&Config, &BTreeMap<String, Traffic>),
        (world, groups): (&World, &BTreeMap<u64, Group>),
        now: Moment,
    ) {
        if now.since(self.learned_at) < EVERY {
            return;
        }
        self.learned_at = now;
        self.slowed = vec![1.0; config.models.len()];
        let runners = self.runners(world, groups);
        for (index, model) in config.models.iter().enumerate() {
            let slowdowns = traffic.get(&model.name).into_iter().flat_map(|one| &one.slowdown);
            for (slice, slowdown) in slowdowns {
                let Some((site, own)) = runners.get(&(slice.0.clone(), index)) else {
                    continue;
                };
                if own.busy < BUSY {
                    continue;
                }
                let others =
                    runners.iter().filter(|((label, _), (at, _))| at == site && *label != slice.0);
                let others: Vec<Runner> = others.map(|(_, (_, runner))| *runner).collect();
                let scene = Scene { own: *own, others: &others };
                let alone = Duration::from_millis(100);
                let times = Times { took: alone.mul_f64(slowdown.clamp(1.0, 10.0)), alone };
                self.observe(&scene, times, now);
                let expected = self.interference.slowdown(&scene, now).min(MOST);
                self.slowed[index] = self.slowed[index].max(expected);
            }
        }
    }

    /// Learns from one batch.
    pub(super) fn observe(&mut self, scene: &Scene<'_>, times: Times, now: Moment) {
        self.interference.observe(scene, times, now);
    }

    /// Who is at work where: by label of the slice and model, the GPU and the replica.
    fn runners(
        &self,
        world: &World,
        groups: &BTreeMap<u64, Group>,
    ) -> HashMap<(String, usize), (usize, Runner)> {
        let mut runners = HashMap::new();
        for Group { site, slice, replica } in groups.values() {
            let (on, Some(model)) = (&world.sites[*site], replica.model) else { continue };
            let spot = &on.slices[*slice];
            let compute = f64::from(spot.position.profile().compute_slices);
            let runner = Runner {
                model: u32::try_from(model).unwrap_or(u32::MAX),
                compute: compute / f64::from(on.kind.compute_slices),
                busy: self.busy(&spot.label),
                load: Draw::default(),
            };
            runners.insert((spot.label.clone(), model), (*site, runner));
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

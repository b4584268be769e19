//! What is known of how fast models are: their measured profiles, or what their warm-ups showed.

use std::collections::{BTreeMap, HashMap};

use policy::plan::{Measured, Row};
use protocol::{ReplicaState, Report, WarmPoint};

use crate::learned::Warmups;

/// No batch takes longer, nor has more rows, whatever a file says.
const SANE_S: f64 = 86_400.0;
const SANE_ROWS: u32 = 1 << 20;

/// Warm-ups that were seen.
#[derive(Debug, Default)]
pub(super) struct Lessons {
    /// By model and kind of GPU.
    seen: HashMap<(String, Option<String>), Profiles>,
    count: u64,
}

/// By profile, rows per batch and their seconds.
type Profiles = BTreeMap<String, Vec<(u32, f64)>>;

impl Lessons {
    /// Learns from what a worker reports.
    pub(super) fn learn(&mut self, report: &Report) {
        for gpu in &report.gpus {
            for slice in &gpu.slices {
                for replica in &slice.replicas {
                    let ReplicaState::Ready(ready) = &replica.state else { continue };
                    let points = middles(&ready.warmup);
                    if points.is_empty() {
                        continue;
                    }
                    let model = (replica.model.clone(), gpu.kind.clone());
                    let profiles = self.seen.entry(model).or_default();
                    if profiles.get(&slice.profile) != Some(&points) {
                        profiles.insert(slice.profile.clone(), points);
                        self.count += 1;
                    }
                }
            }
        }
    }

    /// How often something new was learned.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// What is worth keeping of a model.
    pub(super) fn kept(&self, model: &str) -> Vec<Warmups> {
        let mine = self.seen.iter().filter(|((name, _), _)| name == model);
        let mut kept: Vec<Warmups> = mine
            .map(|((_, kind), profiles)| Warmups { kind: kind.clone(), profiles: profiles.clone() })
            .collect();
        kept.sort_by(|a, b| a.kind.cmp(&b.kind));
        kept
    }

    /// Takes up what was kept of a model.
    pub(super) fn recall(&mut self, model: &str, kept: &[Warmups]) {
        let sane = |(rows, seconds): &(u32, f64)| {
            (1..=SANE_ROWS).contains(rows) && *seconds > 0.0 && *seconds < SANE_S
        };
        for Warmups { kind, profiles } in kept {
            let sane = profiles.iter().filter(|(_, points)| points.iter().all(sane));
            let profiles = sane.map(|(profile, points)| (profile.clone(), points.clone()));
            let known = self.seen.entry((model.to_owned(), kind.clone())).or_default();
            known.extend(profiles);
        }
    }

    /// What was measured of a model. Nothing, if it was neither measured nor run.
    pub(super) fn of(&self, model: &config::Model) -> Vec<Measured> {
        if let Some(profile) = &model.profile {
            let rows = profile.rows().iter().map(|row| Row {
                profile: row.profile.clone(),
                batch: row.batch,
                processes: row.processes,
                // Where the file's two numbers disagree, its time is what executors and deadlines go by.
                throughput_rps: 1e3 * f64::from(row.batch * row.processes) / row.batch_ms(),
            });
            return vec![Measured { kind: None, rows: rows.collect() }];
        }
        let mine = self.seen.iter().filter(|((name, _), _)| *name == model.name);
        let mut measured: Vec<Measured> = mine
            .map(|((_, kind), profiles)| Measured { kind: kind.clone(), rows: rows(profiles) })
            .collect();
        measured.sort_by(|a, b| a.kind.cmp(&b.kind));
        measured
    }
}

fn rows(profiles: &Profiles) -> Vec<Row> {
    let mut rows = Vec::new();
    for (profile, points) in profiles {
        rows.extend(points.iter().map(|(batch, seconds)| Row {
            profile: profile.clone(),
            batch: *batch,
            processes: 1,
            throughput_rps: f64::from(*batch) / seconds,
        }));
    }
    rows
}

/// The middle time of each size that was warmed.
fn middles(warmup: &[WarmPoint]) -> Vec<(u32, f64)> {
    let middle = |point: &WarmPoint| {
        let mut times = point.compute_us.clone();
        times.sort_unstable();
        let micros = *times.get(times.len() / 2)?;
        Some((point.batch, micros.max(1) as f64 / 1e6))
    };
    warmup.iter().filter_map(middle).collect()
}

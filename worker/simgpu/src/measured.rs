//! A model's measurements, and its speed on slices that were not measured.
//!
//! A row of the slice's own profile counts as it stands. A profile without rows takes those of one
//! with as much compute, else its times lie between those of the next smaller and the next larger,
//! straight in the inverse of compute: half the slice, twice the work of each part. Rows that name
//! their GPU are scaled to another by memory bandwidth, which bounds small batches.

use std::collections::{BTreeMap, BTreeSet};

use mig::{Kind, Profile, measured::Row};

use crate::{SimError, Speed, board, speed::Curve};

/// How much of a batch's time shrinks with compute, by batch size: from the medians of 11 models on
/// an A100, whose 1g slice has 1.0 of the whole GPU's throughput at batch 1, 0.47 at 8, 0.17 at 32.
const DIVISIBLE: [(f64, f64); 3] = [(1.0, 0.0), (8.0, 0.188), (32.0, 0.814)];

#[derive(Clone, Debug)]
pub struct Measured {
    /// On which GPU; absent, they hold for every GPU as they stand.
    kind: Option<&'static Kind>,
    /// By compute slices and name of profile.
    speeds: BTreeMap<(u32, String), Speed>,
}

impl Measured {
    pub fn new(kind: Option<&'static Kind>, rows: &[Row]) -> Result<Self, SimError> {
        let names: BTreeSet<&str> = rows.iter().map(|row| row.profile.as_str()).collect();
        let mut speeds = BTreeMap::new();
        for name in names {
            let compute = mig::measured::compute_slices(name).unwrap_or(1).max(1);
            let mut curves: BTreeMap<u32, Vec<(u32, f64)>> = BTreeMap::new();
            for row in rows.iter().filter(|row| row.profile == name) {
                if row.batch == 0 {
                    return Err(SimError::EmptyBatch);
                }
                if row.processes == 0 {
                    return Err(SimError::NoProcess);
                }
                curves.entry(row.processes).or_default().push((row.batch, row.batch_ms()));
            }
            let curves = curves.into_iter().map(|(processes, points)| (processes, points.into()));
            speeds.insert((compute, name.to_owned()), Speed::new(curves.collect()));
        }
        if speeds.is_empty() { Err(SimError::Unmeasured) } else { Ok(Self { kind, speeds }) }
    }

    pub fn on(&self, kind: &'static Kind, profile: &str) -> Result<Speed, SimError> {
        let profile = kind.profile(profile)?;
        let scale = self
            .kind
            .map_or(1.0, |measured| board(measured).bandwidth_gbps / board(kind).bandwidth_gbps);
        Ok(self.found(profile).unwrap_or_else(|| self.between(profile)).scaled(scale))
    }

    fn found(&self, profile: &Profile) -> Option<Speed> {
        let plain = profile.name.split('+').next().unwrap_or(&profile.name);
        let compute = u32::from(profile.compute_slices);
        let exact = self.speeds.get(&(compute, plain.to_owned()));
        let alike = || self.speeds.iter().find(|((known, _), _)| *known == compute);
        exact.or_else(|| alike().map(|(_, speed)| speed)).cloned()
    }

    fn between(&self, profile: &Profile) -> Speed {
        let wanted = u32::from(profile.compute_slices);
        let sizes: Vec<(u32, &Speed)> =
            self.speeds.iter().map(|((compute, _), speed)| (*compute, speed)).collect();
        let above = sizes.partition_point(|(compute, _)| *compute < wanted);
        match (above.checked_sub(1).map(|below| sizes[below]), sizes.get(above)) {
            (Some((small, slow)), Some((large, fast))) => {
                let inverse = |compute: u32| 1.0 / f64::from(compute);
                let along = (inverse(small) - inverse(wanted)) / (inverse(small) - inverse(*large));
                slow.merged(fast, |_, slow_ms, fast_ms| slow_ms + along * (fast_ms - slow_ms))
            }
            (Some((known, speed)), None) | (None, Some(&(known, speed))) => {
                let ratio = f64::from(known) / f64::from(wanted);
                speed.merged(speed, |batch, ms, _| ms * (1.0 + divisible(batch) * (ratio - 1.0)))
            }
            (None, None) => unreachable!("measurements have at least one row"),
        }
    }
}

fn divisible(batch: u32) -> f64 {
    let size = f64::from(batch).ln();
    let along = |low: (f64, f64), high: (f64, f64)| {
        let part = (size - low.0.ln()) / (high.0.ln() - low.0.ln());
        low.1 + part * (high.1 - low.1)
    };
    let [one, some, many] = DIVISIBLE;
    let part = if f64::from(batch) <= some.0 { along(one, some) } else { along(some, many) };
    part.clamp(0.0, 1.0)
}

impl From<Vec<(u32, f64)>> for Curve {
    fn from(mut points: Vec<(u32, f64)>) -> Self {
        points.sort_by_key(|(batch, _)| *batch);
        Self(points)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Models(BTreeMap<String, Measured>);

impl Models {
    pub fn insert(&mut self, name: &str, measured: Measured) {
        self.0.insert(name.to_owned(), measured);
    }

    pub fn get(&self, model: &str) -> Result<&Measured, SimError> {
        self.0.get(model).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            SimError::UnknownModel { model: model.to_owned(), known: known.join(", ") }
        })
    }
}

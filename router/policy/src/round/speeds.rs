//! How fast models are: their measured profiles, or what their warm-ups showed.

use std::collections::BTreeMap;

use mig::Kind;

use super::{ModelTerms, SeenWorker};
use crate::plan::{Measured, Row};

/// No batch takes longer, nor has more rows, whatever a file says.
const SANE_S: f64 = 86_400.0;
const SANE_ROWS: u32 = 1 << 20;

/// By profile, rows per batch and their seconds.
type Profiles = BTreeMap<String, Vec<(u32, f64)>>;

/// How fast a model was on slices of one kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptSpeeds {
    /// The kind; absent, one that is not in the MIG table.
    pub kind: Option<String>,
    /// By profile, rows per batch and their seconds.
    pub profiles: Profiles,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Speeds {
    /// By model and kind of GPU.
    seen: BTreeMap<(String, Option<String>), Profiles>,
    count: u64,
}

impl Speeds {
    pub(super) fn learn(&mut self, worker: &SeenWorker) {
        for gpu in &worker.gpus {
            for slice in &gpu.slices {
                for one in slice.replicas.iter().filter(|one| !one.warmup.is_empty()) {
                    let kind = gpu.kind.map(|kind| kind.name.clone());
                    let profiles = self.seen.entry((one.model.clone(), kind)).or_default();
                    if profiles.get(&slice.profile) != Some(&one.warmup) {
                        profiles.insert(slice.profile.clone(), one.warmup.clone());
                        self.count += 1;
                    }
                }
            }
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn kept(&self, model: &str) -> Vec<KeptSpeeds> {
        let mine = self.seen.iter().filter(|((name, _), _)| name == model);
        mine.map(|((_, kind), profiles)| KeptSpeeds {
            kind: kind.clone(),
            profiles: profiles.clone(),
        })
        .collect()
    }

    pub(super) fn recall(&mut self, model: &str, kept: &[KeptSpeeds]) {
        let sane = |(rows, seconds): &(u32, f64)| {
            (1..=SANE_ROWS).contains(rows) && *seconds > 0.0 && *seconds < SANE_S
        };
        for KeptSpeeds { kind, profiles } in kept {
            let sane = profiles.iter().filter(|(_, points)| points.iter().all(sane));
            let profiles = sane.map(|(profile, points)| (profile.clone(), points.clone()));
            let known = self.seen.entry((model.to_owned(), kind.clone())).or_default();
            known.extend(profiles);
        }
    }

    /// What was measured of a model. Nothing, if it was neither measured nor run.
    pub(super) fn of(&self, model: &ModelTerms) -> Vec<Measured> {
        let declared = model.measured.iter().flat_map(|measured| &measured.rows);
        let of_cores = |row: &Row| mig::cores_of(&row.profile).is_some();
        let has_cores = declared.clone().any(of_cores);
        let has_any = declared.count() > 0;
        let mine = self.seen.iter().filter(|((name, _), _)| *name == model.name);
        // A profile of GPUs says nothing of cores.
        let lacks = |on: &Option<String>| {
            let cores =
                || on.as_deref().is_some_and(|on| mig::device(on).is_ok_and(Kind::is_cores));
            !has_any || (!has_cores && cores())
        };
        let mine = mine.filter(|((_, kind), _)| lacks(kind));
        let seen =
            mine.map(|((_, kind), profiles)| Measured { kind: kind.clone(), rows: rows(profiles) });
        model.measured.iter().cloned().chain(seen).collect()
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

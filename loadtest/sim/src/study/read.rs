//! From what is written to what is meant, or everything that is wrong with it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use flate2::read::GzDecoder;
use mig::{Geometry, Kind, measured};
use simgpu::{Delays, Load, Measured};
use toml::Spanned;

use super::{Asking, BATCHINGS, Detail, Gpus, Placement, Study, Subject, batching, draft};
use crate::{
    fleet::{Fault, Terms, Trouble},
    problems::Problems,
};

const MOST_GPUS: u32 = 1_000_000;
const MOST_MODELS: u32 = 10_000;
/// A packed file is not unpacked further.
const MOST_BYTES: u64 = 1 << 30;
const MOST_SECONDS: f64 = 1e9;
pub(super) const MOST_RPS: f64 = 1e9;

pub(super) fn parse(path: &Path, text: &str) -> Result<Study, Problems> {
    let mut reader = Reader {
        folder: path.parent().unwrap_or(path).to_owned(),
        problems: Problems::new(path, text),
        profiles: BTreeMap::new(),
    };
    let study = match toml::from_str::<draft::Draft>(text) {
        Ok(draft) => reader.study(&draft),
        Err(error) => {
            reader.problems.add(&error.span().unwrap_or(0..0), error.message());
            None
        }
    };
    reader.problems.into_result(study)
}

pub(super) struct Reader {
    folder: PathBuf,
    pub(super) problems: Problems,
    profiles: BTreeMap<String, Option<Vec<measured::Row>>>,
}

impl Reader {
    fn study(&mut self, draft: &draft::Draft) -> Option<Study> {
        let terms = self.terms(draft);
        let detail = self.choice(
            "detail",
            draft.detail.as_ref(),
            &[("requests", Detail::Requests), ("rates", Detail::Rates)],
        );
        let placement = match &draft.placement {
            Some(name) => Placement::named(name.get_ref()).or_else(|| {
                let known = Placement::names().join(", ");
                self.problems.add(&name.span(), format!("placement is one of {known}"));
                None
            }),
            None => Some(Placement::Spread),
        };
        if placement == Some(Placement::Follow) {
            self.follow_sees(draft);
        }
        let interval = draft.interval_s.as_ref();
        let interval_s = interval
            .map_or(60.0, |value| self.problems.within("interval_s", value, 0.1..=86_400.0));
        if draft.gpus.is_empty() && draft.training.is_none() {
            self.problems.add(&(0..0), "no [[gpu]]: nothing to run on");
        }
        if draft.models.is_empty() && draft.training.is_none() {
            self.problems.add(&(0..0), "no [[model]]: nothing to run");
        }
        let gpus: Vec<Option<Gpus>> = draft.gpus.iter().map(|gpu| self.gpus(gpu)).collect();
        let models: Vec<Option<Vec<Subject>>> =
            draft.models.iter().map(|model| self.subjects(model)).collect();
        let names = self.names(&draft.models);
        let duration = terms.duration;
        let streams: Vec<Option<Vec<Asking>>> =
            draft.streams.iter().map(|one| self.asking(one, &names, duration)).collect();
        let gpus: Option<Vec<Gpus>> = gpus.into_iter().collect();
        let count = gpus.iter().flatten().map(|gpus| gpus.count as usize).sum();
        let faults: Vec<Option<Fault>> =
            draft.faults.iter().map(|fault| self.fault(fault, count)).collect();
        if detail == Some(Detail::Rates) {
            self.rates_see(draft);
        }
        self.training_sees(draft);
        let training = match &draft.training {
            Some(training) => Some(self.training(training)?),
            None => None,
        };
        let random_faults = draft.random_faults.as_ref();
        let random_faults = random_faults
            .map_or(0, |value| self.problems.within("random_faults", value, 0..=1_000));
        Some(Study {
            name: String::new(),
            about: draft.about.clone(),
            detail: detail?,
            terms,
            interval: Duration::from_secs_f64(interval_s.clamp(0.1, 86_400.0)),
            placement: placement?,
            share_slices: draft.share_slices.unwrap_or(true),
            gpus: gpus?,
            models: models.into_iter().collect::<Option<Vec<_>>>()?.concat(),
            streams: streams.into_iter().collect::<Option<Vec<_>>>()?.concat(),
            faults: faults.into_iter().collect::<Option<_>>()?,
            random_faults,
            training,
            start: None,
        })
    }

    fn terms(&mut self, draft: &draft::Draft) -> Terms {
        let duration = self.seconds("duration_s", &draft.duration_s, 0.001);
        let warmup = draft.warmup_s.as_ref().map(|value| self.seconds("warmup_s", value, 0.0));
        let noise = draft.noise.as_ref();
        let noise = noise.map_or(0.0, |value| self.problems.within("noise", value, 0.0..=1.0));
        let mut millis = |key: &str, given: &Option<Spanned<f64>>| {
            let most = 1_000.0;
            let ms = given
                .as_ref()
                .map_or(0.0, |value| self.problems.within(key, value, 0.0..=most).clamp(0.0, most));
            Duration::from_secs_f64(ms / 1e3)
        };
        let network = millis("network_ms", &draft.network_ms);
        let executor = millis("executor_ms", &draft.executor_ms);
        let mut delays = Delays::default();
        if let Some(given) = &draft.delays {
            let mut millis = |key: &str, value: &Option<Spanned<u64>>, into: &mut Duration| {
                if let Some(value) = value {
                    let found = self.problems.within(key, value, 0..=3_600_000);
                    *into = Duration::from_millis(found);
                }
            };
            millis("create_ms", &given.create_ms, &mut delays.create);
            millis("destroy_ms", &given.destroy_ms, &mut delays.destroy);
            millis("start_ms", &given.start_ms, &mut delays.start);
            if let Some(value) = &given.load_mib_per_s {
                delays.load_mib_per_s = self.problems.within("load_mib_per_s", value, 1.0..=1e7);
            }
        }
        let warmup = warmup.unwrap_or_default();
        let seed = draft.seed.unwrap_or(1);
        Terms { duration, warmup, noise, network, executor, delays, seed }
    }

    fn gpus(&mut self, draft: &draft::Gpu) -> Option<Gpus> {
        let count = draft.count.as_ref();
        let count = count.map_or(1, |value| self.problems.within("count", value, 1..=MOST_GPUS));
        let kind = self.kind(&draft.kind)?;
        let positions = match &draft.geometry {
            None => Ok(vec![kind.whole()]),
            Some(texts) => texts.get_ref().iter().map(|text| kind.position(text)).collect(),
        };
        let span = draft.geometry.as_ref().map_or_else(|| draft.kind.span(), Spanned::span);
        let geometry = positions.and_then(|positions| Geometry::new(kind, positions));
        let geometry = geometry.map_err(|error| self.problems.add(&span, error.to_string()));
        Some(Gpus { kind, count, geometry: geometry.ok()? })
    }

    fn kind(&mut self, name: &Spanned<String>) -> Option<&'static Kind> {
        let found = mig::kind(name.get_ref());
        found.map_err(|unknown| self.problems.add(&name.span(), unknown.to_string())).ok()
    }

    fn subjects(&mut self, draft: &draft::Model) -> Option<Vec<Subject>> {
        let slo_ms = self.problems.within("slo_ms", &draft.slo_ms, 0.001..=3.6e6);
        let slo = Duration::from_secs_f64(slo_ms.clamp(0.001, 3.6e6) / 1e3);
        let timeout = self.timeout(draft, slo);
        let target = draft.slo_target.as_ref();
        let target =
            target.map_or(0.99, |value| self.problems.within("slo_target", value, 0.0..=1.0));
        let replicas = draft.replicas.as_ref();
        let replicas =
            replicas.map_or(1, |value| self.problems.within("replicas", value, 1..=1_000_000));
        let memory = draft.memory_mib.as_ref();
        let memory_mib = memory.map(|value| self.problems.within("memory_mib", value, 1..=1 << 24));
        let demand = draft.demand_rps.as_ref();
        let demand_rps =
            demand.map(|value| self.problems.within("demand_rps", value, 0.0..=MOST_RPS));
        let load = draft.load.as_ref().map(|load| Load {
            power: self.problems.within("power", &load.power, 0.0..=10.0),
            tlb: self.problems.within("bandwidth", &load.bandwidth, 0.0..=1.0),
            pcie: self.problems.within("pcie", &load.pcie, 0.0..=1.0),
        });
        let copies = draft.copies.as_ref();
        let copies = copies.map(|value| self.problems.within("copies", value, 1..=MOST_MODELS));
        let kind = match &draft.measured_on {
            Some(name) => Some(self.kind(name)?),
            None => None,
        };
        let rows = self.profile(&draft.profile_csv)?;
        let largest = rows.iter().map(|row| row.batch).max().unwrap_or(1);
        let max_batch = draft.max_batch.as_ref();
        let max_batch =
            max_batch.map_or(largest, |value| self.problems.within("max_batch", value, 1..=4_096));
        let rule = match &draft.batching {
            None => batching("slo", slo, max_batch),
            Some(name) => batching(name.get_ref(), slo, max_batch).or_else(|| {
                let known = BATCHINGS.join(", ");
                self.problems.add(&name.span(), format!("batching is one of {known}"));
                None
            }),
        };
        let measured = Measured::new(kind, &rows);
        let measured = measured
            .map_err(|error| self.problems.add(&draft.profile_csv.span(), error.to_string()));
        let subject = Subject {
            name: draft.name.get_ref().clone(),
            slo,
            timeout,
            target,
            max_batch,
            batching: rule?,
            memory_mib,
            load,
            replicas,
            demand_rps,
            rows,
            measured: measured.ok()?,
        };
        let numbered = |number: u32| {
            let name = format!("{}-{number}", subject.name);
            Subject { name, ..subject.clone() }
        };
        match copies {
            Some(copies) => Some((1..=copies).map(numbered).collect()),
            None => Some(vec![subject]),
        }
    }

    /// How long an answer is wanted of a model with the objective `slo`.
    fn timeout(&mut self, draft: &draft::Model, slo: Duration) -> Duration {
        let Some(value) = &draft.timeout_ms else { return slo };
        let least = slo.as_secs_f64() * 1e3;
        let found = self.problems.within("timeout_ms", value, least..=3.6e6_f64.max(least));
        Duration::try_from_secs_f64(found / 1e3).unwrap_or(slo).max(slo)
    }

    fn names(&mut self, models: &[draft::Model]) -> BTreeMap<String, Range<usize>> {
        let mut names = BTreeMap::new();
        let mut next = 0;
        for model in models {
            let copies = model.copies.as_ref().map_or(1, |copies| *copies.get_ref() as usize);
            let name = model.name.get_ref().clone();
            if names.insert(name.clone(), next..next + copies).is_some() {
                self.problems.add(&model.name.span(), format!("model {name:?} is named twice"));
            }
            next += copies;
        }
        names
    }

    fn profile(&mut self, path: &Spanned<String>) -> Option<Vec<measured::Row>> {
        if let Some(known) = self.profiles.get(path.get_ref()) {
            return known.clone();
        }
        let read = self.file(path).and_then(|text| {
            let wrong = |wrong: Vec<measured::Wrong>| {
                let first = wrong.first().map_or(String::new(), |one| {
                    let place = one
                        .place
                        .map_or(String::new(), |(line, column)| format!("{line}:{column}: "));
                    format!("{}: {place}{}", path.get_ref(), one.message)
                });
                self.problems.add(&path.span(), first);
            };
            measured::parse(&text).map_err(wrong).ok()
        });
        self.profiles.insert(path.get_ref().clone(), read.clone());
        read
    }

    pub(super) fn file(&mut self, path: &Spanned<String>) -> Option<String> {
        let text = read_text(&self.folder.join(path.get_ref()));
        text.map_err(|error| {
            self.problems.add(&path.span(), format!("{}: {error}", path.get_ref()));
        })
        .ok()
    }

    fn fault(&mut self, draft: &draft::Fault, gpus: usize) -> Option<Fault> {
        let at = self.seconds("at_s", &draft.at_s, 0.0);
        let lasts = self.seconds("for_s", &draft.for_s, 0.0);
        let gpu = draft
            .gpu
            .as_ref()
            .map_or(0, |value| self.problems.within("gpu", value, 0..=gpus.saturating_sub(1)));
        let factor = draft.factor.as_ref();
        let factor = factor.map_or(2.0, |value| self.problems.within("factor", value, 1.0..=1e3));
        let by = draft.by_ms.as_ref();
        let by_ms = by.map_or(10.0, |value| self.problems.within("by_ms", value, 0.0..=60_000.0));
        let by = Duration::from_secs_f64(by_ms.clamp(0.0, 60_000.0) / 1e3);
        let trouble = self.choice(
            "kind",
            Some(&draft.kind),
            &[
                ("dead-gpu", Trouble::DeadGpu { gpu }),
                ("slow-gpu", Trouble::SlowGpu { gpu, factor }),
                ("lost-worker", Trouble::LostWorker { gpu }),
                ("slow-network", Trouble::SlowNetwork { by }),
                ("stale-reports", Trouble::StaleReports { by }),
                ("router-restart", Trouble::RouterRestart),
            ],
        )?;
        Some(Fault { at, lasts, trouble })
    }

    pub(super) fn seconds(&mut self, key: &str, value: &Spanned<f64>, least: f64) -> Duration {
        let found = self.problems.within(key, value, least..=MOST_SECONDS);
        Duration::from_secs_f64(found.clamp(least, MOST_SECONDS))
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &str,
        given: Option<&Spanned<String>>,
        words: &[(&str, T)],
    ) -> Option<T> {
        let Some(word) = given else { return words.first().map(|(_, value)| *value) };
        let found = words.iter().find(|(name, _)| name == word.get_ref());
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
            let message =
                format!("{key} is {:?}; give one of {}", word.get_ref(), known.join(", "));
            self.problems.add(&word.span(), message);
        }
        found.map(|(_, value)| *value)
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    if path.extension().is_some_and(|ending| ending == "gz") {
        let mut text = String::new();
        GzDecoder::new(File::open(path)?).take(MOST_BYTES).read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path)
}

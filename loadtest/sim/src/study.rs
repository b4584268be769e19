//! A scenario file, checked: what to simulate and how closely.

mod draft;
mod placement;
mod read;
mod streams;
#[cfg(test)]
mod tests;
pub mod training;
mod unsupported;

use std::{path::Path, time::Duration};

use loadtest::{
    arrivals::{Process, Shape, Spacing},
    plan::Source,
};
use mig::{Geometry, Kind, measured::Row};
use policy::{dispatch::Class, rule::Batching};
use simgpu::{Load, Measured};

pub use self::{placement::Placement, training::Training};
use crate::{
    fleet::{Fault, Terms, Trouble},
    problems::Problems,
    start::{Start, StartError},
};

#[derive(Clone, Debug)]
pub struct Study {
    pub name: String,
    pub about: String,
    pub detail: Detail,
    pub terms: Terms,
    /// The step of [`Detail::Rates`].
    pub interval: Duration,
    pub placement: Placement,
    pub share_slices: bool,
    pub gpus: Vec<Gpus>,
    pub models: Vec<Subject>,
    pub streams: Vec<Asking>,
    pub faults: Vec<Fault>,
    pub random_faults: u32,
    pub training: Option<Training>,
    /// A live router's state to start from: its replicas stay where they are.
    pub start: Option<Start>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Requests,
    /// Interval by interval, each as a short run of requests at its rate would go.
    Rates,
}

impl Detail {
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Rates => "rates",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Gpus {
    pub kind: &'static Kind,
    pub count: u32,
    /// How each is cut, unless a planner decides; the whole GPU as one slice if not given.
    pub geometry: Geometry,
}

#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    pub slo: Duration,
    /// How long after its arrival an answer is still wanted; at least `slo`.
    pub timeout: Duration,
    pub target: f64,
    pub max_batch: u32,
    pub batching: Batching,
    /// What one process of it holds; absent, what the measurements prove to be enough.
    pub memory_mib: Option<u64>,
    pub replicas: u32,
    /// What a planner plans for; absent, what the streams ask.
    pub demand_rps: Option<f64>,
    /// What it asks of what slices share; absent, what inference usually does, and planners are
    /// not told.
    pub load: Option<Load>,
    pub rows: Vec<Row>,
    pub measured: Measured,
}

#[derive(Clone, Debug)]
pub struct Asking {
    pub model: usize,
    pub source: Source,
    pub tenant: String,
    pub weight: f64,
    pub class: Class,
    pub shapes: u32,
}

impl Study {
    /// Reads the file at `path`; paths in it are relative to its directory.
    pub fn load(path: &Path) -> Result<Self, StudyError> {
        let text = std::fs::read_to_string(path).map_err(|source| StudyError::Unreadable {
            path: path.display().to_string(),
            source,
        })?;
        let mut study = read::parse(path, &text)?;
        study.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(study)
    }

    pub fn start_from(&mut self, start: Start) -> Result<(), StartError> {
        let count = start.gpus.len();
        for fault in &self.faults {
            match fault.trouble {
                Trouble::DeadGpu { gpu }
                | Trouble::SlowGpu { gpu, .. }
                | Trouble::LostWorker { gpu }
                    if gpu >= count =>
                {
                    return Err(StartError::NoSuchGpu { gpu, count });
                }
                Trouble::DeadGpu { .. }
                | Trouble::SlowGpu { .. }
                | Trouble::LostWorker { .. }
                | Trouble::SlowNetwork { .. }
                | Trouble::StaleReports { .. }
                | Trouble::RouterRestart => {}
            }
        }
        let whole = |geometry: &Geometry| {
            let geometry = geometry.clone();
            Gpus { kind: geometry.kind(), count: 1, geometry }
        };
        self.gpus = start.gpus.iter().map(whole).collect();
        self.streams.clear();
        for asked in &start.models {
            let unknown = || StartError::UnknownModel { model: asked.name.clone() };
            let named = |subject: &Subject| subject.name == asked.name;
            let model = self.models.iter().position(named).ok_or_else(unknown)?;
            let subject = &mut self.models[model];
            subject.slo = Duration::from_secs_f64(asked.slo_ms / 1e3);
            subject.timeout = subject.timeout.max(subject.slo);
            subject.target = asked.target;
            subject.max_batch = asked.max_batch;
            subject.demand_rps = None;
            let rule = batching(&asked.batching, subject.slo, asked.max_batch);
            subject.batching = rule.unwrap_or(subject.batching);
            let waiting = Source::List(vec![Duration::ZERO; asked.waiting as usize]);
            let rate = (asked.rate_rps > 0.0).then(|| {
                let (spacing, shape) = (Spacing::Poisson, Shape::Flat);
                Source::Process(Process { rate_rps: asked.rate_rps, spacing, shape })
            });
            for source in [waiting].into_iter().chain(rate) {
                self.streams.push(Asking {
                    model,
                    source,
                    tenant: String::new(),
                    weight: 1.0,
                    class: Class::Interactive,
                    shapes: 1,
                });
            }
        }
        self.start = Some(start);
        Ok(())
    }

    pub fn scale(&mut self, by: f64) {
        for stream in &mut self.streams {
            match &mut stream.source {
                Source::Process(process) => process.rate_rps *= by,
                // As many a second in a shorter run of the recording.
                Source::List(list) => list.iter_mut().for_each(|at| *at = at.div_f64(by)),
            }
        }
    }

    pub fn set(&mut self, key: &str, value: &str) -> Result<(), StudyError> {
        let unknown = |wanted: String| StudyError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            wanted,
        };
        match key {
            "batching" => {
                for model in &mut self.models {
                    model.batching = batching(value, model.slo, model.max_batch)
                        .ok_or_else(|| unknown(BATCHINGS.join(", ")))?;
                }
            }
            "placement" => {
                let names = || unknown(Placement::names().join(", "));
                let placement = Placement::named(value).ok_or_else(names)?;
                if placement == Placement::Follow && self.detail != Detail::Rates {
                    return Err(unknown("those that need no detail = \"rates\"".to_owned()));
                }
                self.placement = placement;
                self.start = None;
            }
            _ => {
                let none = || StudyError::Key { key: key.to_owned(), known: KEYS.join(", ") };
                let words = Training::words(key).ok_or_else(none)?;
                let training = self
                    .training
                    .as_mut()
                    .ok_or_else(|| StudyError::NoTraining { key: key.to_owned() })?;
                if !words.contains(&value) {
                    return Err(unknown(words.join(", ")));
                }
                training.set(key, value);
            }
        }
        Ok(())
    }
}

/// What can be compared.
pub const KEYS: [&str; 5] = ["batching", "placement", "order", "tenants", "loans"];

const BATCHINGS: [&str; 6] = ["slo", "aimd", "deadline", "earlydrop", "deferred", "timeout"];

/// The rule of that name. `timeout` has the largest batch and a tenth of the objective, which is
/// what people set who do not know the curve.
fn batching(name: &str, slo: Duration, max_batch: u32) -> Option<Batching> {
    Some(match name {
        "slo" => Batching::Slo,
        "aimd" => Batching::Aimd,
        "deadline" => Batching::Deadline,
        "earlydrop" => Batching::EarlyDrop,
        "deferred" => Batching::Deferred,
        "timeout" => Batching::Timeout { batch: max_batch, delay: slo / 10 },
        _ => return None,
    })
}

#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error("{path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error(transparent)]
    Wrong(#[from] Problems),
    #[error("{key:?} cannot be compared; these can: {known}")]
    Key { key: String, known: String },
    #[error("{key} can be compared only in a scenario with [training]")]
    NoTraining { key: String },
    #[error("{key} has no {value:?}; give some of {wanted}")]
    Value { key: String, value: String, wanted: String },
}

//! Every model served, as the listeners see them.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use policy::moment::Moment;
use serde_json::{Value, json};

use crate::{
    clock::Clock,
    config::{self, Config},
    error::InferError,
    fleet::{Fleet, Reported},
    http::backend::{Availability, Backend, Check, Served},
    metrics::Outcome,
    model::Model,
    recent::Point,
    state::{ConfigState, GpuState, ModelState, Replicas, SliceState},
    trace::SpanMetrics,
};

/// The models, the replicas behind them and the configuration in force.
#[derive(Debug)]
pub struct Registry {
    models: Vec<Arc<Model>>,
    by_name: HashMap<String, Arc<Model>>,
    fleet: Arc<Fleet>,
    config: ArcSwap<Config>,
    loads: Mutex<ConfigState>,
    clock: Clock,
    spans: Arc<SpanMetrics>,
}

impl Registry {
    /// The models of `config`, without replicas. Must be made inside a runtime.
    pub fn start(config: Config) -> io::Result<Self> {
        let clock = Clock::start();
        let weights = weights(&config);
        let start = |model| Model::start(model, &weights, clock).map(Arc::new);
        let models = config.models.iter().map(start).collect::<io::Result<Vec<_>>>()?;
        let by_name = models.iter().map(|model| (model.name().to_owned(), Arc::clone(model)));
        Ok(Self {
            by_name: by_name.collect(),
            fleet: Arc::new(Fleet::new(&models)),
            models,
            config: ArcSwap::from_pointee(config),
            loads: Mutex::default(),
            clock,
            spans: Arc::default(),
        })
    }

    /// Returns when every model has the replicas it must have, or with why one never will.
    pub async fn warm(&self) -> Result<(), String> {
        loop {
            let changed = self.fleet.changed();
            let mut all = true;
            for model in &self.models {
                let wanted = model.config().replicas.min as usize;
                if model.dispatcher().replicas() >= wanted {
                    continue;
                }
                if let Some(failure) = model.failure() {
                    let (name, reason) = (model.name(), failure.reason);
                    return Err(format!("model {name:?} cannot be served: {reason}"));
                }
                all = false;
            }
            if all {
                return Ok(());
            }
            changed.await;
        }
    }

    /// The replicas and their connections.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// The configuration in force.
    pub fn config_in_force(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Puts a configuration in force that has the same models.
    pub fn reconfigure(&self, config: Config) {
        let weights = weights(&config);
        for settings in &config.models {
            if let Some(model) = self.by_name.get(&settings.name) {
                model.reconfigure(settings, &weights);
            }
        }
        self.config.store(Arc::new(config));
    }

    /// Notes an attempt to load a configuration at `at_s` seconds since 1970.
    pub fn loaded(&self, succeeded: bool, at_s: f64) {
        let mut loads = self.loads.lock();
        loads.last_reload_successful = succeeded;
        if succeeded {
            loads.generation += 1;
            loads.loaded_at_s = at_s;
        }
    }

    /// How the configuration was last loaded.
    pub fn config_state(&self) -> ConfigState {
        *self.loads.lock()
    }

    /// What becomes of spans, whichever tracer records them.
    pub fn spans(&self) -> &Arc<SpanMetrics> {
        &self.spans
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.clock.now().since(Moment::default())
    }

    /// Remembers every model's counts of now.
    pub fn take_counts(&self) {
        self.models.iter().for_each(|model| model.take_counts());
    }

    /// How each model did in the last minutes.
    pub fn history(&self) -> BTreeMap<&str, Vec<Point>> {
        self.models.iter().map(|model| (model.name(), model.history())).collect()
    }

    /// Every model and every GPU, in the order of the configuration.
    pub fn states(&self) -> (Vec<ModelState>, Vec<GpuState>) {
        let mut reported = self.fleet.reported();
        let config = self.config.load();
        let gpus: Vec<GpuState> = config
            .workers
            .iter()
            .enumerate()
            .map(|(index, worker)| gpu(index, worker, &mut reported))
            .collect();
        let mut replicas = HashMap::<&str, Replicas>::new();
        let slices = gpus.iter().flat_map(|gpu| &gpu.slices);
        for replica in slices.flat_map(|slice| &slice.replicas) {
            replicas.entry(&replica.model).or_default().add(replica);
        }
        let state = |model: &Arc<Model>| {
            model.state(replicas.get(model.name()).copied().unwrap_or_default())
        };
        (self.models.iter().map(state).collect(), gpus)
    }
}

/// The tenants' weights by index; callers that are no tenant come first.
fn weights(config: &Config) -> Vec<f64> {
    std::iter::once(1.0).chain(config.tenants.iter().map(|tenant| tenant.share)).collect()
}

impl Backend for Registry {
    type Model = Model;

    fn model(&self, name: &str) -> Option<Arc<Model>> {
        self.by_name.get(name).cloned()
    }

    fn models(&self) -> Vec<Arc<Model>> {
        self.models.clone()
    }

    fn checks(&self) -> Vec<Check> {
        let check = |model: &Arc<Model>| Check {
            name: format!("model {}", model.name()),
            problem: match model.availability() {
                Availability::Ready => None,
                Availability::Loading => Some("no replica is warm yet".to_owned()),
                Availability::Unavailable { reason } => Some(reason),
            },
        };
        self.models.iter().map(check).collect()
    }

    fn refused(&self, model: Option<&Model>, error: &InferError) {
        if let Some(model) = model {
            model.dispatcher().metrics().ended(Outcome::from(error));
        }
    }

    fn workers(&self) -> Value {
        let (_, gpus) = self.states();
        let slices: Vec<SliceState> = gpus.into_iter().flat_map(|gpu| gpu.slices).collect();
        json!({ "slices": slices })
    }

    fn config(&self) -> Value {
        let config = self.config.load();
        serde_json::to_value(&config.effective).unwrap_or_default()
    }
}

/// A configured GPU, with what was reported of its slices.
fn gpu(
    index: usize,
    worker: &config::Worker,
    reported: &mut BTreeMap<String, Reported>,
) -> GpuState {
    let kind = mig::kind(worker.gpu.kind()).ok();
    let slice = |slice: &config::Slice| {
        let position = kind?.position(&slice.position).ok()?;
        let label = mig::slice_label(index, position);
        let Reported { pid, restarts, replicas } = reported.remove(&label).unwrap_or_default();
        Some(SliceState {
            slice: label,
            profile: slice.profile.clone(),
            start: position.start(),
            memory_slices: position.end() - position.start(),
            pid,
            restarts,
            replicas,
        })
    };
    GpuState {
        gpu: format!("gpu{index}"),
        kind: worker.gpu.kind().to_owned(),
        memory_slices: kind.map_or(0, |kind| kind.memory_slices),
        slices: worker.slices.iter().filter_map(slice).collect(),
    }
}

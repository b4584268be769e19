//! Every model served, as the listeners see them.

use std::{collections::HashMap, io, sync::Arc};

use arc_swap::ArcSwap;
use serde_json::{Value, json};

use crate::{
    clock::Clock,
    config::Config,
    error::InferError,
    fleet::Fleet,
    http::backend::{Availability, Backend, Check, Served},
    metrics::Outcome,
    model::Model,
};

/// The models, the replicas behind them and the configuration in force.
#[derive(Debug)]
pub struct Registry {
    models: Vec<Arc<Model>>,
    by_name: HashMap<String, Arc<Model>>,
    fleet: Arc<Fleet>,
    config: ArcSwap<Config>,
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

    /// Brings the gauges up to date that move with time alone.
    pub fn refresh_gauges(&self) {
        for model in &self.models {
            model.dispatcher().refresh_gauges();
        }
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
            model.dispatcher().metrics().ended(Outcome::Refused(error.reason()));
        }
    }

    fn state(&self) -> Value {
        let models = self.models.iter().map(|model| {
            let config = model.config();
            json!({
                "name": model.name(),
                "version": model.version(),
                "availability": availability(&model.availability()),
                "slo_ms": config.slo.as_secs_f64() * 1e3,
                "slo_target": config.slo_target,
                "max_batch": model.max_batch(),
                "batching": config.batching.name(),
                "dispatch": model.view(),
                "cache": model.cached(),
            })
        });
        json!({ "models": models.collect::<Vec<_>>(), "slices": self.fleet.reports().iter().map(slice).collect::<Vec<_>>() })
    }

    fn workers(&self) -> Value {
        json!({ "slices": self.fleet.reports().iter().map(slice).collect::<Vec<_>>() })
    }

    fn config(&self) -> Value {
        let config = self.config.load();
        serde_json::to_value(&config.effective).unwrap_or_default()
    }
}

fn availability(availability: &Availability) -> Value {
    match availability {
        Availability::Ready => json!("ready"),
        Availability::Loading => json!("loading"),
        Availability::Unavailable { reason } => json!({ "unavailable": reason }),
    }
}

/// A slice's report without its executor's token.
fn slice(report: &protocol::Report) -> Value {
    let replicas = report.replicas.iter().map(|replica| {
        let mut shown = json!({ "replica": replica.replica, "model": replica.model });
        shown["state"] = match &replica.state {
            protocol::ReplicaState::Starting => json!("starting"),
            protocol::ReplicaState::Loading => json!("loading"),
            protocol::ReplicaState::Warming { batch } => json!({ "warming": batch }),
            protocol::ReplicaState::Lost { reason } => json!({ "lost": reason }),
            protocol::ReplicaState::Failed { reason } => json!({ "failed": reason }),
            protocol::ReplicaState::Ready(ready) => {
                shown["memory_bytes"] = json!(ready.memory_bytes);
                shown["load_ms"] = json!(ready.load_us as f64 / 1e3);
                shown["warmup"] = json!(ready.warmup);
                json!("ready")
            }
        };
        shown
    });
    json!({
        "slice": report.slice,
        "profile": report.profile,
        "pid": report.pid,
        "restarts": report.restarts,
        "replicas": replicas.collect::<Vec<_>>(),
    })
}

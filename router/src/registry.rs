//! Every model served, as the listeners see them.

use std::{io, sync::Arc};

use arc_swap::ArcSwap;
use serde_json::{Value, json};

use crate::{
    clock::Clock,
    config::Config,
    error::InferError,
    fleet::Fleet,
    http::backend::{Availability, Backend, Check, Served},
    metrics::Outcome,
    model::{Model, Models},
};

/// The models, the replicas behind them and the configuration in force.
#[derive(Debug)]
pub struct Registry {
    models: Arc<ArcSwap<Models>>,
    fleet: Arc<Fleet>,
    config: ArcSwap<Config>,
    clock: Clock,
}

impl Registry {
    /// The models of `config`, without replicas. Must be made inside a runtime.
    pub fn start(config: Config) -> io::Result<Self> {
        let clock = Clock::start();
        let weights = weights(&config);
        let start = |model| Model::start(model, &weights, clock).map(Arc::new);
        let models = config.models.iter().map(start).collect::<io::Result<Vec<_>>>()?;
        let models = Arc::new(ArcSwap::from_pointee(Models::new(models)));
        Ok(Self {
            fleet: Arc::new(Fleet::new(Arc::clone(&models))),
            models,
            config: ArcSwap::from_pointee(config),
            clock,
        })
    }

    /// Returns when every model has the replicas it must have, or with why one never will.
    pub async fn warm(&self) -> Result<(), String> {
        loop {
            let changed = self.fleet.changed();
            let mut all = true;
            for model in self.models.load().iter() {
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

    /// Puts a configuration in force. Must be called inside a runtime.
    pub fn reconfigure(&self, config: Config) -> io::Result<()> {
        let weights = weights(&config);
        let before = self.models.load();
        let mut models = Vec::with_capacity(config.models.len());
        for settings in &config.models {
            models.push(match before.get(&settings.name) {
                Some(model) => Arc::clone(model),
                None => Arc::new(Model::start(settings, &weights, self.clock)?),
            });
        }
        for (model, settings) in models.iter().zip(&config.models) {
            model.reconfigure(settings, &weights);
        }
        self.models.store(Arc::new(Models::new(models)));
        self.config.store(Arc::new(config));
        self.fleet.poke();
        Ok(())
    }

    /// Brings the gauges up to date that move with time alone.
    pub fn refresh_gauges(&self) {
        for model in self.models.load().iter() {
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
        self.models.load().get(name).cloned()
    }

    fn models(&self) -> Vec<Arc<Model>> {
        self.models.load().iter().cloned().collect()
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
        self.models.load().iter().map(check).collect()
    }

    fn refused(&self, model: Option<&Model>, error: &InferError) {
        if let Some(model) = model {
            model.dispatcher().metrics().ended(Outcome::Refused(error.reason()));
        }
    }

    fn state(&self) -> Value {
        let models = self.models.load();
        let models = models.iter().map(|model| {
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
        json!({ "models": models.collect::<Vec<_>>(), "slices": self.fleet.slices() })
    }

    fn workers(&self) -> Value {
        json!({ "workers": self.fleet.workers() })
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

//! Every model served, as the listeners see them.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use config::Config;
use control::{Control, Stored, plane::DataPlane};
use parking_lot::{Mutex, MutexGuard};
use policy::moment::Moment;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serve::{
    clock::Clock,
    count::{Outcome, recent::Point},
    doors::oip::backend::{Backend, Check},
    error::InferError,
    model::{Availability, Model, Models, Served},
    trace::SpanMetrics,
};

use crate::{
    carried::RouterCarried,
    fleet::Fleet,
    jobs::Jobs,
    leader::Leadership,
    orders::Orders,
    plan::{PlanState, Planned},
    plane::Plane,
};

/// The models, the replicas behind them and the configuration in force.
#[derive(Debug)]
pub struct Registry {
    models: Arc<ArcSwap<Models>>,
    plane: Arc<Plane>,
    control: Arc<Control>,
    config: ArcSwap<Config>,
    loads: Mutex<ConfigState>,
    /// As the file has it. Held from reading the configuration in force to replacing it.
    filed: Mutex<Arc<Config>>,
    clock: Clock,
    spans: Arc<SpanMetrics>,
    carried: RouterCarried,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigState {
    /// Configurations put in force since the start, that of the start included.
    pub generation: u64,
    pub last_reload_successful: bool,
    /// When the one in force was loaded, in seconds since 1970.
    pub loaded_at_s: f64,
}

impl Registry {
    /// The models of `config`, without replicas, and a control plane that begins with what is stored.
    /// Must be made inside a runtime.
    pub fn start(config: Config, stored: Stored) -> io::Result<Self> {
        let clock = Clock::start();
        let weights = weights(&config);
        let start = |model| Model::start(model, &weights, clock).map(Arc::new);
        let models = config.models.iter().map(start).collect::<io::Result<Vec<_>>>()?;
        let models = Arc::new(ArcSwap::from_pointee(Models::new(models)));
        let plane = Arc::new(Plane::new(Arc::clone(&models)));
        let served: Arc<dyn DataPlane> = Arc::<Plane>::clone(&plane);
        Ok(Self {
            models,
            plane,
            control: Control::new(config.clone(), served, stored),
            filed: Mutex::new(Arc::new(config.clone())),
            config: ArcSwap::from_pointee(config),
            loads: Mutex::default(),
            clock,
            spans: Arc::default(),
            carried: RouterCarried::default(),
        })
    }

    /// Returns when every model has the replicas it must have, or with why one never will.
    pub async fn warm(&self) -> Result<(), String> {
        loop {
            let (mut heard, mut linked) = (self.fleet().changed(), self.plane.changed());
            let mut all = true;
            for model in self.models.load().iter() {
                // One that may sleep is loaded once, so that what it takes and gives is known.
                let wanted = model.config().replicas.min.max(1) as usize;
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
            tokio::select! {
                _ = heard.changed() => {}
                _ = linked.changed() => {}
            }
        }
    }

    pub fn plane(&self) -> &Arc<Plane> {
        &self.plane
    }

    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    pub fn fleet(&self) -> &Arc<Fleet> {
        self.control.fleet()
    }

    pub fn jobs(&self) -> &Arc<Jobs> {
        self.control.jobs()
    }

    pub fn orders(&self) -> &Arc<Orders> {
        self.control.orders()
    }

    pub fn leadership(&self) -> &Arc<Leadership> {
        self.control.leadership()
    }

    pub fn config_in_force(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// The configuration of the file. Nobody else changes the one in force while the guard lives.
    pub fn filed(&self) -> MutexGuard<'_, Arc<Config>> {
        self.filed.lock()
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
        let config = Arc::new(config);
        self.config.store(Arc::clone(&config));
        self.control.configure(config);
        Ok(())
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

    /// Notes a change of the configuration in force that was not loaded, at `at_s` seconds since 1970.
    pub fn changed(&self, at_s: f64) {
        let mut loads = self.loads.lock();
        loads.generation += 1;
        loads.loaded_at_s = at_s;
    }

    pub fn config_state(&self) -> ConfigState {
        *self.loads.lock()
    }

    pub fn spans(&self) -> &Arc<SpanMetrics> {
        &self.spans
    }

    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    pub fn wall_ms(&self) -> u64 {
        self.control.clock().now_ms()
    }

    pub fn uptime(&self) -> Duration {
        self.now().since(Moment::default())
    }

    pub fn plan(&self) -> &Arc<Planned> {
        self.control.planned()
    }

    pub fn take_counts(&self) {
        let models = self.models.load();
        models.iter().for_each(|model| model.take_counts());
        let rows = models.iter().map(|model| model.rows()).sum();
        self.carried.take(self.now(), rows, &self.fleet().views());
    }

    /// The last plan, with no more capacity than was carried.
    pub(crate) fn plan_state(&self) -> PlanState {
        let mut plan = self.plan().state();
        let models = self.models.load();
        let of = |name: &str| models.get(name).and_then(|model| model.carried_rps());
        self.carried.show(&mut plan.models, &self.fleet().views(), of);
        plan
    }

    /// Has every model fold the samples it holds into its histograms.
    pub fn drain_histograms(&self) {
        self.models.load().iter().for_each(|model| model.dispatcher().metrics().drain());
    }

    pub fn history(&self) -> BTreeMap<String, Vec<Point>> {
        let models = self.models.load();
        models.iter().map(|model| (model.name().to_owned(), model.history())).collect()
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
                Availability::Ready | Availability::Asleep => None,
                Availability::Loading => Some("no replica is warm yet".to_owned()),
                Availability::Unavailable { reason } => Some(reason),
            },
        };
        let mut checks: Vec<Check> = self.models.load().iter().map(check).collect();
        if let Some(problem) = self.leadership().name_taken() {
            checks.push(Check { name: "own name".to_owned(), problem });
        }
        checks
    }

    fn refused(&self, model: Option<&Model>, error: &InferError) {
        if let Some(model) = model {
            model.dispatcher().metrics().ended(Outcome::from(error));
        }
    }

    fn drop_late(&self, bytes: u64) -> u64 {
        self.models.load().iter().fold(0, |dropped, model| {
            dropped + model.dispatcher().drop_late(bytes.saturating_sub(dropped))
        })
    }

    fn plan(&self) -> Value {
        serde_json::to_value(self.plan_state()).unwrap_or_default()
    }

    fn plan_input(&self) -> Option<String> {
        self.control.planned().dump()
    }

    fn config(&self) -> Value {
        let config = self.config.load();
        serde_json::to_value(&config.effective).unwrap_or_default()
    }
}

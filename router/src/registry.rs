//! Every model served, as the listeners see them.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use config::{Config, ReadyWhen};
use control::{Control, Stored, plane::DataPlane};
use parking_lot::{Mutex, MutexGuard};
use policy::moment::Moment;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serve::{
    clock::{Clock, wall_s},
    count::{Outcome, recent::Point},
    doors::oip::backend::{Backend, Check, Service},
    error::InferError,
    model::{Model, Models, Served},
    trace::SpanMetrics,
};
use tokio::time::{Instant, sleep};

use tokio::sync::watch;

use crate::{
    carried::RouterCarried,
    events,
    fleet::{Fleet, LOCAL},
    jobs::Jobs,
    leader::Leadership,
    orders::Orders,
    plan::{PlanState, Planned},
    plane::Plane,
    ready::{self, First, Readiness},
    service,
};

pub use crate::ready::Started;

/// How often readiness is looked at though nothing was heard.
const LOOK: Duration = Duration::from_secs(1);

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
    readiness: Readiness,
    events: events::Log,
    reconfigured: watch::Sender<()>,
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
        let models = Models::new(models);
        service::apply(&models, &stored.orders.standing());
        let models = Arc::new(ArcSwap::from_pointee(models));
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
            readiness: Readiness::default(),
            events: events::Log::default(),
            reconfigured: watch::Sender::default(),
        })
    }

    /// Returns how this router is ready for the first time, or with why it never will be, unless
    /// something changes.
    pub async fn warm(&self) -> Result<Started, String> {
        let mut began = Instant::now();
        loop {
            let (mut heard, mut linked) = (self.fleet().changed(), self.plane.changed());
            if self.fleet().names().is_empty() {
                // Nothing can be loaded without a worker.
                began = Instant::now();
            }
            match self.first(began.elapsed()) {
                First::Ready(started) => {
                    self.readiness.become_ready();
                    return Ok(started);
                }
                First::Never { why } => return Err(why),
                First::Waits(_) => {}
            }
            tokio::select! {
                _ = heard.changed() => {}
                _ = linked.changed() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    /// This router is as ready as the one that it replaces.
    pub(crate) fn become_ready(&self) {
        self.readiness.become_ready();
    }

    fn first(&self, waited: Duration) -> First {
        // Where no other worker can join, what has no room will have none.
        let fixed = self.fleet().names().iter().all(|name| name == LOCAL);
        let config = self.config.load();
        ready::first(&self.models.load(), &config.router, fixed, waited)
    }

    /// Follows whether any replica is in reach, for as long as this router runs.
    pub(crate) async fn follow_links(&self) {
        loop {
            let mut linked = self.plane.changed();
            self.readiness.look(self.plane.connections().links().into_values());
            tokio::select! {
                _ = linked.changed() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Takes models out of service, and puts them back, as operators have ordered.
    pub(crate) fn take_orders(&self) {
        service::apply(&self.models.load(), &self.orders().standing());
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
        let models = Models::new(models);
        service::apply(&models, &self.orders().standing());
        self.models.store(Arc::new(models));
        let config = Arc::new(config);
        self.config.store(Arc::clone(&config));
        self.control.configure(config);
        self.reconfigured.send_replace(());
        Ok(())
    }

    /// Looks at the files of a model again, and has it loaded anew if they changed; what changed.
    async fn reread(&self, model: &str) -> Result<Vec<config::Change>, InferError> {
        let (before, name) = (self.config_in_force(), model.to_owned());
        let read = tokio::task::spawn_blocking(move || {
            let of = before.models.iter().find(|one| one.name == name);
            of.and_then(|model| model.engine.content())
        });
        let failed = |_| InferError::Internal { what: "reading a model file failed" };
        let Some(content) = read.await.map_err(failed)? else { return Ok(Vec::new()) };
        let with = |config: &Config| {
            let mut config = config.clone();
            let of = config.models.iter_mut().filter(|one| one.name == model);
            of.for_each(|one| one.content = Some(content.clone()));
            config
        };
        let mut filed = self.filed();
        let now = self.config_in_force();
        let then = with(&now);
        let changes = config::diff(&now, &then);
        if !changes.is_empty() {
            let no_timer = |_| InferError::Internal { what: "the system has no timer" };
            self.reconfigure(then).map_err(no_timer)?;
            *filed = Arc::new(with(&filed));
            self.changed(wall_s());
            tracing::info!(model, changes = %json!(changes), "model file changed; loading it");
        }
        Ok(changes)
    }

    /// Looks at the files of models of which nothing is served because they could not be loaded: they may
    /// have been mended.
    pub(crate) async fn mend(&self) {
        let sick = |model: &&Arc<Model>| {
            let content = &model.config().content;
            model.failure().is_some() && model.dispatcher().replicas() == 0 && content.is_some()
        };
        let models = self.models.load_full();
        for model in models.iter().filter(sick) {
            if let Err(error) = self.reread(model.name()).await {
                tracing::warn!(model = model.name(), %error, "cannot look at a model file again");
            }
        }
    }

    /// Whoever waits hears when another configuration is in force.
    pub fn reconfigured(&self) -> watch::Receiver<()> {
        self.reconfigured.subscribe()
    }

    /// What changed, and why.
    pub fn events(&self) -> &events::Log {
        &self.events
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
        let config = self.config.load();
        let strict = config.router.ready == ReadyWhen::All;
        let started = match self.first(Duration::ZERO) {
            _ if self.readiness.was_ready() => None,
            First::Ready(_) => None,
            First::Never { why } => Some(why.replace('\n', "; ")),
            First::Waits(models) => {
                let one = |(model, why)| format!("{model} ({why})");
                let names: Vec<String> = models.into_iter().map(one).collect();
                Some(format!("waiting for {}", names.join(", ")))
            }
        };
        let stalled = self
            .control
            .stalled()
            .map(|since| format!("the control loop has not turned for {} s", since.as_secs()));
        let mut checks = vec![
            Check::must("started", started),
            Check::must("control loop", stalled),
            Check::must("replicas in reach", self.readiness.cut_off()),
        ];
        if let Some(problem) = self.leadership().name_taken() {
            checks.push(Check::must("own name", problem));
        }
        checks.extend(self.models.load().iter().map(|model| Check::of_model(&**model, strict)));
        checks
    }

    async fn order(&self, model: &Arc<Model>, order: Service) -> Result<Value, InferError> {
        let changes = match order {
            Service::Load => self.reread(model.name()).await?,
            Service::Unload { .. } => Vec::new(),
        };
        let serves = (!changes.is_empty()).then(|| model.edition()).flatten();
        let models = self.models.load_full();
        service::order(&self.control, &models, (model, serves), order).await?;
        Ok(if changes.is_empty() { json!({}) } else { json!({ "changes": changes }) })
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

//! Every model served, as the listeners see them.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use config::{Config, Objective};
use parking_lot::{Mutex, MutexGuard};
use policy::moment::Moment;
use serde_json::{Value, json};
use store::{Change, Records};

use crate::{
    clock::Clock,
    count::{Outcome, recent::Point},
    dataplane::DataPlane,
    error::InferError,
    fleet::Fleet,
    http::backend::{Availability, Backend, Check, Served},
    jobs::Jobs,
    leader::Standing,
    lend::{Ledger, WallClock},
    model::{Model, Models},
    orders::{Aim, Orders},
    place::{Planned, afar},
    plane::Plane,
    serve::wall_clock_s,
    state::{ConfigState, JobsState, ModelState, Replicas, WorkerState},
    trace::SpanMetrics,
};

/// The models, the replicas behind them and the configuration in force.
#[derive(Debug)]
pub struct Registry {
    models: Arc<ArcSwap<Models>>,
    plane: Arc<Plane>,
    fleet: Arc<Fleet>,
    jobs: Arc<Jobs>,
    orders: Arc<Orders>,
    ledger: Arc<Ledger>,
    standing: Arc<Standing>,
    config: ArcSwap<Config>,
    loads: Mutex<ConfigState>,
    /// As the file has it. Held from reading the configuration in force to replacing it.
    filed: Mutex<Arc<Config>>,
    wall: WallClock,
    clock: Clock,
    spans: Arc<SpanMetrics>,
    plan: Planned,
}

impl Registry {
    /// The models of `config`, without replicas, and the jobs and orders that are kept, of a router
    /// that may do what `standing` says. Must be made inside a runtime.
    pub fn start(
        config: Config,
        jobs: Arc<Jobs>,
        (orders, standing): (Arc<Orders>, Arc<Standing>),
    ) -> io::Result<Self> {
        let clock = Clock::start();
        let weights = weights(&config);
        let start = |model| Model::start(model, &weights, clock).map(Arc::new);
        let models = config.models.iter().map(start).collect::<io::Result<Vec<_>>>()?;
        let models = Arc::new(ArcSwap::from_pointee(Models::new(models)));
        let plane = Arc::new(Plane::new(Arc::clone(&models)));
        let served: Arc<dyn DataPlane> = Arc::<Plane>::clone(&plane);
        Ok(Self {
            fleet: Arc::new(Fleet::new(served, Arc::clone(&orders), Arc::clone(&standing))),
            plane,
            models,
            ledger: Arc::new(Ledger::of(&jobs.unfinished())),
            jobs,
            orders,
            standing,
            filed: Mutex::new(Arc::new(config.clone())),
            config: ArcSwap::from_pointee(config),
            loads: Mutex::default(),
            wall: WallClock::start(),
            clock,
            spans: Arc::default(),
            plan: Planned::default(),
        })
    }

    /// Returns when every model has the replicas it must have, or with why one never will.
    pub async fn warm(&self) -> Result<(), String> {
        loop {
            let (mut heard, mut linked) = (self.fleet.changed(), self.plane.changed());
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

    /// The models and the connections to their replicas.
    pub fn plane(&self) -> &Arc<Plane> {
        &self.plane
    }

    /// The workers.
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// The training jobs.
    pub fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    /// What operators want of the fleet.
    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// Who has which slice.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// What this router may do.
    pub fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// Takes `records` for all jobs and orders there are. May wait for a change that is being
    /// written. Must be called inside a runtime.
    pub fn take_records(&self, records: &Records) {
        self.jobs.replace(records);
        self.ledger.reset(&self.jobs.unfinished());
        self.orders.replace(records);
        self.aim();
    }

    /// Takes in what another router changed. May wait for a change that is being written. Must be
    /// called inside a runtime.
    pub fn take_change(&self, change: Change) {
        self.orders.learn(change.clone());
        self.jobs.learn(change);
        self.ledger.reset(&self.jobs.unfinished());
        self.aim();
    }

    /// Puts the objectives that operators have ordered in force. Must be called inside a runtime.
    pub fn aim(&self) {
        let filed = self.filed.lock();
        let config = self.aimed(&filed);
        let changes = config::diff(&self.config.load(), &config);
        if changes.is_empty() {
            return;
        }
        match self.reconfigure(config) {
            Ok(()) => {
                self.changed(wall_clock_s());
                tracing::info!(changes = %json!(changes), "objectives are as ordered");
            }
            Err(error) => tracing::error!(%error, "objectives are not as ordered"),
        }
    }

    /// The same with the objectives that operators have ordered, where they can be had.
    pub fn aimed(&self, filed: &Config) -> Config {
        let mut config = filed.clone();
        for (model, aim) in &self.orders.standing().objectives {
            let Aim { slo_ms, slo_target } = *aim;
            let asked = Objective { model: model.clone(), slo_ms, slo_target, apply: true };
            match config.with_objective(&asked) {
                Ok(aimed) => config = aimed,
                Err(error) => tracing::warn!(model, %error, "an ordered objective is let be"),
            }
        }
        config
    }

    /// The configuration in force.
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
        self.config.store(Arc::new(config));
        self.fleet.poke();
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

    /// How the configuration was last loaded.
    pub fn config_state(&self) -> ConfigState {
        *self.loads.lock()
    }

    /// What becomes of spans, whichever tracer records them.
    pub fn spans(&self) -> &Arc<SpanMetrics> {
        &self.spans
    }

    /// The present.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Milliseconds since 1970.
    pub fn wall_ms(&self) -> u64 {
        self.wall.now_ms()
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.now().since(Moment::default())
    }

    /// What was decided last about who is where.
    pub fn plan(&self) -> &Planned {
        &self.plan
    }

    /// Remembers every model's counts of now.
    pub fn take_counts(&self) {
        self.models.load().iter().for_each(|model| model.take_counts());
    }

    /// How each model did in the last minutes.
    pub fn history(&self) -> BTreeMap<String, Vec<Point>> {
        let models = self.models.load();
        models.iter().map(|model| (model.name().to_owned(), model.history())).collect()
    }

    /// The training jobs, and what is lent to them.
    pub fn jobs_state(&self) -> JobsState {
        let loans = self.config.load().loans.as_ref().map(|loans| loans.allow.clone());
        self.jobs.state(loans.unwrap_or_default(), self.wall_ms())
    }

    /// Every worker.
    fn workers_state(&self) -> Vec<WorkerState> {
        let mut workers = self.fleet.workers(&self.ledger.lock());
        let standing = self.orders.standing();
        let acts = self.standing.acts().is_some();
        for worker in &mut workers {
            let drain = standing.drains.get(&worker.name);
            worker.drain = drain.map(|drain| {
                if acts { self.plan.drain(&worker.name, drain) } else { afar::drain(worker, drain) }
            });
        }
        workers
    }

    /// These models, and every worker.
    pub fn states(&self, models: &[Arc<Model>]) -> (Vec<ModelState>, Vec<WorkerState>) {
        let workers = self.workers_state();
        let mut replicas = HashMap::<&str, Replicas>::new();
        let slices = workers.iter().flat_map(|worker| &worker.gpus).flat_map(|gpu| &gpu.slices);
        for replica in slices.flat_map(|slice| &slice.replicas) {
            replicas.entry(&replica.model).or_default().add(replica);
        }
        let state = |model: &Arc<Model>| {
            model.state(replicas.get(model.name()).copied().unwrap_or_default())
        };
        (models.iter().map(state).collect(), workers)
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
        if let Some(problem) = self.standing().name_taken() {
            checks.push(Check { name: "own name".to_owned(), problem });
        }
        checks
    }

    fn refused(&self, model: Option<&Model>, error: &InferError) {
        if let Some(model) = model {
            model.dispatcher().metrics().ended(Outcome::from(error));
        }
    }

    fn workers(&self) -> Value {
        json!({ "workers": self.workers_state() })
    }

    fn plan(&self) -> Value {
        serde_json::to_value(self.plan.state()).unwrap_or_default()
    }

    fn plan_input(&self) -> Option<String> {
        self.plan.dump()
    }

    fn config(&self) -> Value {
        let config = self.config.load();
        serde_json::to_value(&config.effective).unwrap_or_default()
    }
}

//! One served model: its settings, its dispatcher and its cache, and whether it is in service.

mod view;

use std::{
    collections::HashMap,
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::Class;
use foldhash::fast::RandomState;
use futures_util::future::Either;
use oip::{Signature, model::ModelStats};
use parking_lot::Mutex;
use policy::fleet::{SliceName, Traffic};

pub use self::view::{Replicas, View};
use crate::{
    cache::{self, Cache, Patience},
    clock::Clock,
    count::{
        carried::{Carried, MODEL_ROWS},
        latency::Latencies,
        recent::{Point, Recent},
    },
    dispatch::{Dispatcher, Replica},
    error::InferError,
    request::{Answer, Request},
};

/// A served model as a door sees it: [`Model`], or ten lines in a test of the protocol.
pub trait Served: Send + Sync + 'static {
    fn name(&self) -> &str;

    /// That of the replica that last came into rotation; before the first, as configured.
    fn version(&self) -> String;

    /// What runs it, as its replicas report it.
    fn platform(&self) -> String;

    /// Whether it runs on a GPU that does not exist, so that how fast it is says little.
    fn is_simulated(&self) -> bool {
        false
    }

    /// The most rows one request or batch may hold.
    fn max_batch(&self) -> u32;

    /// The class of requests that name none.
    fn class(&self) -> Class;

    /// The time from arrival to answer, and the share of requests that must keep within it.
    fn objective(&self) -> (Duration, f64);

    /// What it takes and gives; none until a replica has said.
    fn signature(&self) -> Option<Arc<Signature>>;

    fn availability(&self) -> Availability;

    /// Whether equal requests may be answered from memory.
    fn remembers(&self) -> bool;

    /// What requests wait for while it has no replica; empty where that is not known.
    fn absence(&self) -> Arc<str>;

    /// What it has done since the router started.
    fn stats(&self) -> ModelStats;

    /// Answers `request`. Dropping the future is the client hanging up.
    fn infer(&self, request: Request) -> impl Future<Output = Result<Answer, InferError>> + Send;
}

/// Why a model that was unloaded is not served.
pub const UNLOADED: &str = "unloaded by request";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// At least one replica is warm.
    Ready,
    Loading {
        /// Why no replica is warm, as far as that is known.
        why: String,
    },
    /// It has no replica because nobody has asked for it; the next request brings one.
    Asleep,
    /// An operator has taken it out of service.
    Unloaded,
    /// It cannot be asked, and nothing is being done about it.
    Unavailable { reason: String },
}

#[derive(Debug)]
pub struct Model {
    name: String,
    version: ArcSwap<String>,
    config: ArcSwap<config::Model>,
    shape: ArcSwapOption<Shape>,
    /// The revision of the replica that last came into rotation.
    edition: Mutex<Option<u64>>,
    in_service: AtomicBool,
    asleep: AtomicBool,
    simulated: AtomicBool,
    failure: Mutex<Option<Failure>>,
    dispatcher: Arc<Dispatcher>,
    cache: Arc<Cache>,
    clock: Clock,
    recent: Mutex<Recent>,
    latencies: Mutex<Latencies>,
    carried: Mutex<Carried>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: String,
    /// Whether its executor is being started again, so that waiting may help.
    pub returns: bool,
    /// Whether the fleet of now has no room for it.
    pub unplaced: bool,
}

/// What a replica said of the model itself.
#[derive(Debug)]
struct Shape {
    signature: Arc<Signature>,
    platform: String,
    max_batch: u32,
}

impl Model {
    /// A model without replicas. Must be made inside a runtime.
    pub fn start(config: &config::Model, weights: &[f64], clock: Clock) -> io::Result<Self> {
        let dispatcher = Dispatcher::start(config, clock)?;
        dispatcher.reconfigure(config, weights);
        Ok(Self {
            name: config.name.clone(),
            version: ArcSwap::from_pointee(config.version.clone()),
            config: ArcSwap::from_pointee(config.clone()),
            shape: ArcSwapOption::empty(),
            edition: Mutex::new(None),
            in_service: AtomicBool::new(true),
            asleep: AtomicBool::new(false),
            simulated: AtomicBool::new(false),
            failure: Mutex::new(None),
            dispatcher,
            cache: Cache::new(&config.name, cache_bytes(config)),
            recent: Mutex::new(Recent::new(clock.now())),
            latencies: Mutex::new(Latencies::new(clock.now())),
            carried: Mutex::new(Carried::new(MODEL_ROWS)),
            clock,
        })
    }

    pub fn config(&self) -> Arc<config::Model> {
        self.config.load_full()
    }

    pub fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    pub fn reconfigure(&self, config: &config::Model, weights: &[f64]) {
        if *self.config.load_full() != *config {
            self.carried.lock().forget();
        }
        self.config.store(Arc::new(config.clone()));
        self.dispatcher.reconfigure(config, weights);
        self.cache.resize(cache_bytes(config));
    }

    pub fn attach(&self, replica: Replica, platform: &str, max_batch: u32) {
        let before = self.shape.swap(Some(Arc::new(Shape {
            signature: Arc::clone(&replica.signature),
            platform: platform.to_owned(),
            max_batch,
        })));
        if before.is_some_and(|before| before.signature != replica.signature) {
            self.cache.clear();
        }
        *self.failure.lock() = None;
        self.dispatcher.attach(replica);
    }

    /// A replica could not be had, or is gone.
    pub fn failed(&self, failure: Failure) {
        self.dispatcher.explain_absence(&failure.reason);
        let before = self.failure.lock().replace(failure.clone());
        let serving = self.dispatcher.replicas();
        if serving > 0 && before.is_none_or(|before| before.reason != failure.reason) {
            let (model, reason) = (&self.name, failure.reason);
            tracing::warn!(model, reason, serving, "replica failed; those in rotation serve on");
        }
    }

    /// The revision of the replica that last came into rotation.
    pub fn edition(&self) -> Option<u64> {
        *self.edition.lock()
    }

    /// It is to be loaded again: that it failed before says nothing.
    pub fn forgive(&self) {
        *self.failure.lock() = None;
    }

    /// Why its last replica failed, until one is warm.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.lock().clone()
    }

    /// Remembers its counts of now, so that later ones can be held against them.
    pub fn take_counts(&self) {
        let totals = self.dispatcher.metrics().totals();
        let waiting = self.dispatcher.waiting();
        let now = self.clock.now();
        self.recent.lock().take(now, totals, waiting);
        self.latencies.lock().take(now, self.dispatcher.metrics().latencies(), &totals);
        let (work, replicas) = (self.dispatcher.tally().work(), self.dispatcher.replicas());
        self.carried.lock().take(now, work, replicas as f64);
    }

    /// Rows per second that its replicas can carry by what they did end to end; nothing before enough
    /// was seen.
    pub fn carried_rps(&self) -> Option<f64> {
        Some(self.carried.lock().whole_rps()? * self.dispatcher.replicas() as f64)
    }

    /// The rows that were computed since the start.
    pub fn rows(&self) -> u64 {
        self.dispatcher.tally().work().rows
    }

    pub fn history(&self) -> Vec<Point> {
        self.recent.lock().history()
    }

    /// What is going on, if these are its replicas as reported.
    pub fn view(&self, reported: Replicas) -> View {
        let config = self.config.load();
        let (now, metrics) = (self.clock.now(), self.dispatcher.metrics());
        let totals = metrics.totals();
        let (availability, reason) = match self.availability() {
            Availability::Ready => ("ready", None),
            Availability::Loading { why } => ("loading", Some(why)),
            Availability::Asleep => ("asleep", None),
            Availability::Unloaded => ("unloaded", Some(UNLOADED.to_owned())),
            Availability::Unavailable { reason } => ("unavailable", Some(reason)),
        };
        View {
            name: self.name.clone(),
            version: self.version(),
            content: config.content.clone(),
            availability: availability.to_owned(),
            reason,
            slo_ms: config.slo.as_secs_f64() * 1e3,
            slo_target: config.slo_target,
            max_batch: self.max_batch(),
            batching: config.batching.name().to_owned(),
            recent: self.recent.lock().view(now, &totals),
            latency: self.latencies.lock().view(now, metrics.latencies(), &totals),
            totals,
            dispatch: self.dispatcher.view(),
            replicas: reported.of_which(self.dispatcher.replicas()),
            cache: self.cached(),
        }
    }

    /// Whether the replica that was reported last is on a GPU that does not exist.
    pub fn runs_simulated(&self, simulated: bool) {
        let before = self.simulated.swap(simulated, Ordering::Relaxed);
        let pretends = matches!(self.config.load().engine, config::Engine::Synthetic { .. });
        if simulated && !before && !pretends {
            let model = &self.name;
            tracing::warn!(
                model,
                "real model runs on a simulated GPU, on any core; offer cores with cpu"
            );
        }
    }

    /// Takes it out of service, or puts it back. Doing either twice is doing it once.
    pub fn set_in_service(&self, in_service: bool) {
        let before = self.in_service.swap(in_service, Ordering::Relaxed);
        if before && !in_service {
            self.cache.clear();
        }
    }

    /// It has no replica until it is asked for.
    pub fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        let why = "the model sleeps, since replicas.min is 0; this request starts a replica";
        self.dispatcher.explain_absence(why);
    }

    /// It is to have a replica, which waits for something.
    pub fn waits_for(&self, what: &str) {
        self.asleep.store(false, Ordering::Relaxed);
        // A failure says more, and stands until a replica is ready.
        if self.failure.lock().is_none() {
            self.dispatcher.explain_absence(what);
        }
    }

    /// A replica of revision `digest` comes into rotation: what others answered is not given again.
    pub fn came(&self, digest: u64, version: &str) {
        if **self.version.load() != *version {
            self.version.store(Arc::new(version.to_owned()));
        }
        let before = self.edition.lock().replace(digest);
        if before.is_some_and(|before| before != digest) {
            self.cache.clear();
        }
    }

    /// A replica of revision `digest` is gone. If a newer revision serves, what that one answered last
    /// is not given again.
    pub fn left(&self, digest: u64) {
        if self.edition.lock().is_some_and(|edition| edition != digest) {
            self.cache.clear();
        }
    }

    pub fn traffic(&self) -> Traffic {
        let totals = self.dispatcher.metrics().totals();
        let inside = self.dispatcher.view();
        let stats = self.stats();
        let answered = stats.inference_stats.success.count.max(1);
        let waiting = inside.waiting as u64;
        let (eligible, within) = (totals.eligible(), totals.within_objective);
        let slowdowns = inside.slowdowns_by_slice();
        Traffic {
            // A rise is to be seen when requests come, not when they are answered.
            arrived: eligible + totals.abandoned + waiting + inside.in_flight as u64,
            late: eligible.saturating_sub(totals.failed + within),
            eligible,
            within,
            waiting,
            rows_per_request: (stats.inference_count as f64 / answered as f64).max(1.0),
            slowdown: slowdowns.map(|(name, by)| (SliceName(name.to_owned()), by)).collect(),
        }
    }

    /// How full its cache is; none if it has none.
    pub fn cached(&self) -> Option<cache::View> {
        self.cache.is_on().then(|| self.cache.view())
    }

    async fn recall(&self, request: Request) -> Result<Answer, InferError> {
        let caller = self.dispatcher.caller(request.arrived);
        let config = self.config.load();
        let patience = Patience { objective: config.slo, timeout: config.timeout() };
        drop(config);
        let result = self.cache.answer(request, patience, &self.dispatcher).await;
        caller.told(&result);
        result
    }
}

fn cache_bytes(config: &config::Model) -> usize {
    usize::try_from(config.cache_mib << 20).unwrap_or(usize::MAX)
}

impl Drop for Model {
    fn drop(&mut self) {
        self.dispatcher.close();
    }
}

/// The models served, in the order of the configuration.
#[derive(Debug, Default)]
pub struct Models {
    list: Vec<Arc<Model>>,
    by_name: HashMap<String, Arc<Model>, RandomState>,
}

impl Models {
    pub fn new(list: Vec<Arc<Model>>) -> Self {
        let by_name = list.iter().map(|model| (model.name.clone(), Arc::clone(model)));
        Self { by_name: by_name.collect(), list }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Arc<Model>> {
        self.list.iter()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Model>> {
        self.by_name.get(name)
    }
}

impl Served for Model {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> String {
        String::clone(&self.version.load())
    }

    fn platform(&self) -> String {
        self.shape.load().as_ref().map_or_else(String::new, |shape| shape.platform.clone())
    }

    fn max_batch(&self) -> u32 {
        let configured = self.config.load().max_batch;
        self.shape.load().as_ref().map_or(configured, |shape| shape.max_batch.min(configured))
    }

    fn is_simulated(&self) -> bool {
        self.simulated.load(Ordering::Relaxed)
    }

    fn class(&self) -> Class {
        self.config.load().class
    }

    fn objective(&self) -> (Duration, f64) {
        let config = self.config.load();
        (config.slo, config.slo_target)
    }

    fn signature(&self) -> Option<Arc<Signature>> {
        self.shape.load().as_ref().map(|shape| Arc::clone(&shape.signature))
    }

    fn availability(&self) -> Availability {
        if !self.in_service.load(Ordering::Relaxed) {
            return Availability::Unloaded;
        }
        if self.dispatcher.replicas() > 0 {
            return Availability::Ready;
        }
        if self.asleep.load(Ordering::Relaxed) {
            return Availability::Asleep;
        }
        match &*self.failure.lock() {
            Some(Failure { reason, returns: false, .. }) => {
                Availability::Unavailable { reason: reason.clone() }
            }
            Some(Failure { reason, returns: true, .. }) => {
                Availability::Loading { why: reason.clone() }
            }
            None => match &*self.dispatcher.absence() {
                "" => Availability::Loading { why: "no replica is warm yet".to_owned() },
                why => Availability::Loading { why: why.to_owned() },
            },
        }
    }

    fn remembers(&self) -> bool {
        self.cache.is_on()
    }

    fn absence(&self) -> Arc<str> {
        self.dispatcher.absence()
    }

    fn stats(&self) -> ModelStats {
        self.dispatcher.tally().stats(&self.name, &self.version())
    }

    fn infer(&self, request: Request) -> impl Future<Output = Result<Answer, InferError>> + Send {
        if self.cache.is_on() {
            // In a box, so that models without a cache do not pay for its size.
            return Either::Left(Box::pin(self.recall(request)));
        }
        let ticket = self.dispatcher.submit(request);
        Either::Right(async move { ticket?.answer().await })
    }
}

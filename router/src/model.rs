//! One served model: its settings, its dispatcher, and whether it is in service.

use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::{ArcSwap, ArcSwapOption};
use oip::{Signature, model::ModelStats};
use parking_lot::Mutex;

use crate::{
    clock::Clock,
    config::{self, Class},
    dispatch::{Dispatcher, Replica, View},
    error::InferError,
    http::backend::{Answer, Availability, Job, Served},
};

/// A model the router serves.
#[derive(Debug)]
pub struct Model {
    name: String,
    version: String,
    config: ArcSwap<config::Model>,
    shape: ArcSwapOption<Shape>,
    in_service: AtomicBool,
    failure: Mutex<Option<String>>,
    dispatcher: Arc<Dispatcher>,
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
            version: config.version.clone(),
            config: ArcSwap::from_pointee(config.clone()),
            shape: ArcSwapOption::empty(),
            in_service: AtomicBool::new(true),
            failure: Mutex::new(None),
            dispatcher,
        })
    }

    /// Its settings.
    pub fn config(&self) -> Arc<config::Model> {
        self.config.load_full()
    }

    /// Its queue and replicas.
    pub fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    /// Puts new settings in force.
    pub fn reconfigure(&self, config: &config::Model, weights: &[f64]) {
        self.config.store(Arc::new(config.clone()));
        self.dispatcher.reconfigure(config, weights);
    }

    /// A replica is connected and warm.
    pub fn attach(&self, replica: Replica, platform: &str, max_batch: u32) {
        self.shape.store(Some(Arc::new(Shape {
            signature: Arc::clone(&replica.signature),
            platform: platform.to_owned(),
            max_batch,
        })));
        *self.failure.lock() = None;
        self.dispatcher.attach(replica);
    }

    /// A replica could not be had, and `reason` is why.
    pub fn failed(&self, reason: &str) {
        *self.failure.lock() = Some(reason.to_owned());
    }

    /// Why its last replica failed, until one is warm.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// What is going on.
    pub fn view(&self) -> View {
        self.dispatcher.view()
    }
}

impl Served for Model {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn platform(&self) -> String {
        self.shape.load().as_ref().map_or_else(String::new, |shape| shape.platform.clone())
    }

    fn max_batch(&self) -> u32 {
        let configured = self.config.load().max_batch;
        self.shape.load().as_ref().map_or(configured, |shape| shape.max_batch.min(configured))
    }

    fn class(&self) -> Class {
        self.config.load().class
    }

    fn signature(&self) -> Option<Arc<Signature>> {
        self.shape.load().as_ref().map(|shape| Arc::clone(&shape.signature))
    }

    fn availability(&self) -> Availability {
        if !self.in_service.load(Ordering::Relaxed) {
            return Availability::Unavailable { reason: "unloaded by request".to_owned() };
        }
        if self.dispatcher.replicas() > 0 {
            return Availability::Ready;
        }
        match &*self.failure.lock() {
            Some(reason) => Availability::Unavailable { reason: reason.clone() },
            None => Availability::Loading,
        }
    }

    fn set_in_service(&self, in_service: bool) {
        self.in_service.store(in_service, Ordering::Relaxed);
    }

    fn stats(&self) -> ModelStats {
        self.dispatcher.tally().stats(&self.name, &self.version)
    }

    fn infer(&self, job: Job) -> impl Future<Output = Result<Answer, InferError>> + Send {
        let ticket = self.dispatcher.submit(job);
        async move { ticket?.answer().await }
    }
}

//! The models behind the listeners under test: they echo, wait, or are not there yet.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use config::Class;
use oip::{Datatype, Signature, TensorSpec, model::ModelStats};
use parking_lot::Mutex;
use serde_json::{Value, json};
use serve::{
    doors::oip::backend::{Backend, Check, Service},
    error::InferError,
    model::{Availability, Served},
    request::{Answer, Request},
};
use tokio::sync::watch;

/// Answers with its input, once its gate is open.
pub(crate) struct Echo {
    name: &'static str,
    signature: Option<Arc<Signature>>,
    in_service: AtomicBool,
    /// Requests wait while this is false.
    pub(crate) open: watch::Sender<bool>,
    /// How many requests reached the model.
    pub(crate) started: watch::Sender<u32>,
    /// How many of them were dropped before they were answered.
    pub(crate) dropped: watch::Sender<u32>,
    /// What was asked, inputs aside.
    pub(crate) requests: Mutex<Vec<Asked>>,
}

/// What a request asked for, inputs aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) rows: u32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) class: Class,
    pub(crate) tenant: u32,
}

impl Echo {
    fn new(name: &'static str, signature: Option<Signature>) -> Arc<Self> {
        Arc::new(Self {
            name,
            signature: signature.map(Arc::new),
            in_service: AtomicBool::new(true),
            open: watch::Sender::new(true),
            started: watch::Sender::new(0),
            dropped: watch::Sender::new(0),
            requests: Mutex::default(),
        })
    }

    pub(crate) fn last(&self) -> Asked {
        *self.requests.lock().last().expect("a request has reached the model")
    }
}

struct OnDrop<'a> {
    dropped: &'a watch::Sender<u32>,
    answered: bool,
}

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.dropped.send_modify(|count| *count += 1);
        }
    }
}

impl Served for Echo {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> String {
        "1".to_owned()
    }

    fn platform(&self) -> String {
        "echo".to_owned()
    }

    fn max_batch(&self) -> u32 {
        8
    }

    fn class(&self) -> Class {
        Class::Interactive
    }

    fn objective(&self) -> (Duration, f64) {
        (Duration::from_millis(50), 0.99)
    }

    fn signature(&self) -> Option<Arc<Signature>> {
        self.signature.clone()
    }

    fn availability(&self) -> Availability {
        match (self.in_service.load(Ordering::Relaxed), &self.signature) {
            (false, _) => Availability::Unloaded,
            (true, Some(_)) => Availability::Ready,
            (true, None) => Availability::Loading { why: "no replica is warm yet".to_owned() },
        }
    }

    fn remembers(&self) -> bool {
        false
    }

    fn absence(&self) -> Arc<str> {
        "".into()
    }

    fn stats(&self) -> ModelStats {
        let inference_count = self.requests.lock().iter().map(|asked| u64::from(asked.rows)).sum();
        let (name, version) = (self.name.to_owned(), "1".to_owned());
        ModelStats { name, version, inference_count, ..ModelStats::default() }
    }

    async fn infer(&self, request: Request) -> Result<Answer, InferError> {
        let Request { rows, timeout, class, tenant, .. } = request;
        self.requests.lock().push(Asked { rows, timeout, class, tenant });
        let mut on_drop = OnDrop { dropped: &self.dropped, answered: false };
        self.started.send_modify(|count| *count += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        on_drop.answered = true;
        let names = self.signature.iter().flat_map(|signature| &signature.outputs);
        let outputs = request.inputs.into_iter().zip(names).map(|(mut tensor, spec)| {
            tensor.name = spec.name.as_str().into();
            tensor
        });
        Ok(Answer { outputs: outputs.collect(), spent: None })
    }
}

/// The models, and what was refused before it reached one.
pub(crate) struct Models {
    models: Vec<Arc<Echo>>,
    /// Whether the router is ready only if every model is.
    strict: bool,
    /// Refusals by model and reason.
    pub(crate) refusals: Mutex<HashMap<(String, &'static str), u32>>,
}

impl Models {
    pub(crate) fn new(strict: bool) -> Self {
        let one = |name: &str, datatype, shape: &[i64]| {
            vec![TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }]
        };
        let numbers = Signature {
            inputs: one("x", Datatype::Fp32, &[-1, 4]),
            outputs: one("y", Datatype::Fp32, &[-1, 4]),
        };
        let wide = Signature {
            inputs: one("x", Datatype::Fp32, &[-1, -1]),
            outputs: one("y", Datatype::Fp32, &[-1, -1]),
        };
        let models = vec![
            Echo::new("echo", Some(numbers.clone())),
            Echo::new("wide", Some(wide)),
            Echo::new("a/b c", Some(numbers)),
            Echo::new("cold", None),
        ];
        Self { models, strict, refusals: Mutex::default() }
    }

    pub(crate) fn refused_for(&self, model: &str, reason: &'static str) -> u32 {
        self.refusals.lock().get(&(model.to_owned(), reason)).copied().unwrap_or(0)
    }
}

impl Backend for Models {
    type Model = Echo;

    fn model(&self, name: &str) -> Option<Arc<Echo>> {
        self.models.iter().find(|model| model.name == name).map(Arc::clone)
    }

    fn models(&self) -> Vec<Arc<Echo>> {
        self.models.clone()
    }

    fn drop_late(&self, _bytes: u64) -> u64 {
        0
    }

    fn checks(&self) -> Vec<Check> {
        self.models.iter().map(|model| Check::of_model(&**model, self.strict)).collect()
    }

    async fn order(&self, model: &Arc<Echo>, order: Service) -> Result<Value, InferError> {
        model.in_service.store(order == Service::Load, Ordering::Relaxed);
        Ok(json!({}))
    }

    fn refused(&self, model: Option<&Echo>, error: &InferError) {
        let name = model.map_or("", |model| model.name).to_owned();
        *self.refusals.lock().entry((name, error.reason())).or_default() += 1;
    }

    fn plan(&self) -> Value {
        json!({"replicas": []})
    }

    fn plan_input(&self) -> Option<String> {
        None
    }

    fn config(&self) -> Value {
        json!({"router": {}})
    }
}

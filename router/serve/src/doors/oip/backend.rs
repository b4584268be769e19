//! What the listeners need from the rest of the router.
//!
//! A trait rather than the concrete registry, and [`Served`] rather than the concrete model: the
//! protocol can then be tested over real sockets against a model of ten lines. Both are used by
//! static dispatch only.

use std::{future::Future, sync::Arc};

use crate::{
    error::InferError,
    model::{Availability, Served, UNLOADED},
};

/// Every model served, and what an operator may ask about them together.
pub trait Backend: Send + Sync + 'static {
    type Model: Served;

    fn model(&self, name: &str) -> Option<Arc<Self::Model>>;

    /// All models, in the order of the configuration.
    fn models(&self) -> Vec<Arc<Self::Model>>;

    /// What `/readyz` looks at, draining aside.
    fn checks(&self) -> Vec<Check>;

    /// Takes a model out of service at every router until it is loaded again, or puts it back; the value
    /// is the body of the response.
    fn order(
        &self,
        model: &Arc<Self::Model>,
        order: Service,
    ) -> impl Future<Output = Result<serde_json::Value, InferError>> + Send;

    /// Counts an inference request that was refused before [`Served::infer`] could see it.
    ///
    /// `model` is absent if the request named none that exists.
    fn refused(&self, model: Option<&Self::Model>, error: &InferError);

    /// Refuses requests that can only be late until their inputs held `bytes`, and says how much they
    /// did.
    fn drop_late(&self, bytes: u64) -> u64;

    /// What was decided last about who is where, for `GET /admin/v1/plan`.
    fn plan(&self) -> serde_json::Value;

    /// All that it was decided from, as JSON; nothing before the first decision.
    fn plan_input(&self) -> Option<String>;

    /// The configuration in force with its origins, for `GET /admin/v1/config`.
    fn config(&self) -> serde_json::Value;
}

/// Whether a model shall be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    Load,
    Unload {
        /// Who asks for it.
        by: String,
    },
}

/// One thing that `/readyz` looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A short fixed name, such as `model digits`.
    pub name: String,
    /// Why it does not hold; none if it does.
    pub problem: Option<String>,
    /// What else is to be known of it, such as that it was unloaded.
    pub note: Option<String>,
    /// Whether the router is not ready without it.
    pub counts: bool,
}

impl Check {
    /// One without which the router is not ready.
    pub fn must(name: impl Into<String>, problem: Option<String>) -> Self {
        Self { name: name.into(), problem, note: None, counts: true }
    }

    /// One of a model, which speaks for the router only where all models must be ready.
    pub fn of_model(model: &impl Served, counts: bool) -> Self {
        let (problem, note) = match model.availability() {
            Availability::Ready => (None, None),
            Availability::Asleep => (None, Some("asleep until it is asked for".to_owned())),
            Availability::Unloaded => (None, Some(UNLOADED.to_owned())),
            Availability::Loading { why } | Availability::Unavailable { reason: why } => {
                (Some(why), None)
            }
        };
        Self { name: format!("model {}", model.name()), problem, note, counts }
    }
}

//! What the listeners need from the rest of the router.
//!
//! A trait rather than the concrete registry, and [`Served`] rather than the concrete model: the
//! protocol can then be tested over real sockets against a model of ten lines. Both are used by
//! static dispatch only.

use std::sync::Arc;

use crate::{error::InferError, model::Served};

/// Every model served, and what an operator may ask about them together.
pub trait Backend: Send + Sync + 'static {
    type Model: Served;

    fn model(&self, name: &str) -> Option<Arc<Self::Model>>;

    /// All models, in the order of the configuration.
    fn models(&self) -> Vec<Arc<Self::Model>>;

    /// What must hold for the router to be ready, draining aside.
    fn checks(&self) -> Vec<Check>;

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

/// One thing that must hold for the router to be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A short fixed name, such as `model digits`.
    pub name: String,
    /// Why it does not hold; none if it does.
    pub problem: Option<String>,
}

//! What the listeners need from the rest of the router.
//!
//! Two traits rather than the concrete registry: the protocol can then be tested over real sockets
//! against a model of ten lines, and the dispatcher without a socket. Both are used by static
//! dispatch only.

use std::{future::Future, sync::Arc, time::Duration};

use config::Class;
use oip::{Signature, Tensor, model::ModelStats};
use tokio::time::Instant;

use crate::{error::InferError, trace::Traced};

/// Every model served, and what an operator may ask about them together.
pub trait Backend: Send + Sync + 'static {
    /// One served model.
    type Model: Served;

    /// The model of this name.
    fn model(&self, name: &str) -> Option<Arc<Self::Model>>;

    /// All models, in the order of the configuration.
    fn models(&self) -> Vec<Arc<Self::Model>>;

    /// What must hold for the router to be ready, draining aside.
    fn checks(&self) -> Vec<Check>;

    /// Counts an inference request that was refused before [`Served::infer`] could see it.
    ///
    /// `model` is absent if the request named none that exists.
    fn refused(&self, model: Option<&Self::Model>, error: &InferError);

    /// The workers and what they last reported, for `GET /admin/v1/workers`.
    fn workers(&self) -> serde_json::Value;

    /// What was decided last about who is where, for `GET /admin/v1/plan`.
    fn plan(&self) -> serde_json::Value;

    /// All that it was decided from, as JSON; nothing before the first decision.
    fn plan_input(&self) -> Option<String>;

    /// The configuration in force with its origins, for `GET /admin/v1/config`.
    fn config(&self) -> serde_json::Value;
}

/// One served model.
pub trait Served: Send + Sync + 'static {
    /// The name in paths and replies.
    fn name(&self) -> &str;

    /// The one version served.
    fn version(&self) -> &str;

    /// What runs it, as its replicas report it.
    fn platform(&self) -> String;

    /// The most rows one request or batch may hold.
    fn max_batch(&self) -> u32;

    /// The class of requests that name none.
    fn class(&self) -> Class;

    /// The time from arrival to answer, and the share of requests that must keep within it.
    fn objective(&self) -> (Duration, f64);

    /// What it takes and gives; none until a replica has said.
    fn signature(&self) -> Option<Arc<Signature>>;

    /// Whether it can be asked now.
    fn availability(&self) -> Availability;

    /// Takes it out of service, or puts it back. Doing either twice is doing it once.
    fn set_in_service(&self, in_service: bool);

    /// Whether equal requests may be answered from memory.
    fn remembers(&self) -> bool;

    /// What it has done since the router started.
    fn stats(&self) -> ModelStats;

    /// Answers `job`. Dropping the future is the client hanging up.
    fn infer(&self, job: Job) -> impl Future<Output = Result<Answer, InferError>> + Send;
}

/// One inference request, decoded and checked against the model's signature.
#[derive(Clone, Debug)]
pub struct Job {
    /// The inputs, in the order of the signature.
    pub inputs: Vec<Tensor>,
    /// Its rows. At least 1, at most the model's `max_batch`.
    pub rows: u32,
    /// When its head was read. Deadlines count from here.
    pub arrived: Instant,
    /// The caller's own limit, if it gave one.
    pub timeout: Option<Duration>,
    /// Who goes first when not all can.
    pub class: Class,
    /// The caller, as [`Caller::tenant`](crate::auth::Caller::tenant).
    pub tenant: u32,
    /// Its trace, if it is traced.
    pub traced: Option<Arc<Traced>>,
}

/// What a model gave for one request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The outputs, in the order of the signature.
    pub outputs: Vec<Tensor>,
}

/// Whether a model can be asked now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// At least one replica is warm.
    Ready,
    /// Replicas are on their way.
    Loading,
    /// It has no replica because nobody has asked for it; the next request brings one.
    Asleep,
    /// It cannot be asked, and nothing is being done about it.
    Unavailable {
        /// Why, for people.
        reason: String,
    },
}

/// One thing that must hold for the router to be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A short fixed name, such as `model digits`.
    pub name: String,
    /// Why it does not hold; none if it does.
    pub problem: Option<String>,
}

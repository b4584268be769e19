//! What every door needs of a request, as one stack of tower layers around the door's service.
//!
//! [`AccessLog`] writes the line when the response is made, [`Arrive`] gives the request its id and
//! asks the [`Door`] what it is for, [`Trace`] follows its trace context and renders errors,
//! [`Authenticate`] lets it pass by scope and quota. What they learn travels as a [`Call`], by value:
//! nothing is boxed, and nothing is allocated that a request without layers would not need.
//!
//! Every service here is always ready: whether a request is taken is decided per model, when its rows
//! and its deadline are known, and not by holding up a connection.

mod access_log;
mod arrive;
mod authenticate;
mod trace;

use std::sync::Arc;

use config::Scope;
use http::{Request, Response, request::Parts};
use tokio::time::Instant;
use tower::ServiceBuilder;

pub use self::{access_log::AccessLog, arrive::Arrive, authenticate::Authenticate, trace::Trace};
use crate::{
    auth::{Access, Caller},
    body::RequestBody,
    error::InferError,
    listener::Peer,
    note::Note,
    shared::Shared,
    trace::Traced,
};

/// What a door tells the layers of its requests, and how it renders an error.
pub trait Door: Send + Sync + 'static {
    /// What a request asks for.
    type Route;
    /// The bodies of its responses.
    type Body;

    fn shared(&self) -> &Arc<Shared>;

    /// Reads what a request asks for from its head.
    fn route(&self, head: &Parts) -> Result<Self::Route, InferError>;

    /// The scope a key must have; none if everyone may ask. The infer scope is for tenants too, whose
    /// quota then counts.
    fn scope(&self, route: &Self::Route) -> Option<Scope>;

    /// Whether the request is written to the audit log.
    fn is_audited(&self, route: &Self::Route) -> bool;

    /// The model whose trace the request belongs to, if its kind is traced.
    fn traced<'a>(&self, route: &'a Self::Route) -> Option<&'a str>;

    /// Counts a request that a layer refused.
    fn refused(&self, route: &Self::Route, error: &InferError);

    /// The response that tells a client of `error`.
    fn render(error: &InferError) -> Response<Self::Body>;
}

/// A request on its way to a door's service.
#[derive(Debug)]
pub struct Call {
    pub head: Parts,
    pub body: RequestBody,
    pub context: Context,
}

/// What the layers know of a request.
#[derive(Clone, Debug)]
pub struct Context {
    pub peer: Arc<Peer>,
    /// When the head was read.
    pub arrived: Instant,
    /// The access rules in force at arrival.
    pub access: Arc<Access>,
    pub caller: Caller,
    pub traced: Option<Arc<Traced>>,
    /// What the access log says of the request, if it has a line.
    pub note: Option<Arc<Note>>,
}

/// A call, and what it asks for.
#[derive(Debug)]
pub struct Routed<R> {
    pub route: R,
    pub call: Call,
}

impl Call {
    /// The request as other services of the ecosystem take it, with its [`Context`] as an extension.
    pub fn into_request(self) -> Request<RequestBody> {
        let mut request = Request::from_parts(self.head, self.body);
        request.extensions_mut().insert(self.context);
        request
    }
}

/// The stack of every door.
pub type Stack<D, S> = AccessLog<Arrive<D, Trace<D, Authenticate<D, S>>>>;

/// Puts the layers around `service`, the outermost first.
pub fn stack<D: Door, S>(door: &Arc<D>, service: S) -> Stack<D, S> {
    ServiceBuilder::new()
        .layer(access_log::layer(door.shared()))
        .layer(arrive::layer(door))
        .layer(trace::layer(door))
        .layer(authenticate::layer(door))
        .service(service)
}

//! The admin listener: health, metrics, and what an operator may see and do.
//!
//! It has its own port and its own connections, so that a front door that is full or closing can
//! still be looked at. [`endpoints`] says what is served, and for which scope.

mod console;
pub mod endpoints;
mod error;
mod jobs;
mod objective;
mod orders;
mod routes;
mod views;

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use axum::body::Body;
use config::{Objective, Scope};
use futures_util::FutureExt;
use http::{HeaderValue, Response, request::Parts};
use serde_json::Value;
use serve::{
    doors::oip::{ServerState, backend::Backend},
    drain::Phase,
    error::InferError,
    layers::{self, Door, Routed},
    listener::Listener,
    reply,
    shared::Shared,
};
use tokio::{net::TcpListener, sync::watch, time::timeout};
use tower::ServiceExt;

use crate::{
    office::Office,
    orders::{Order, OrderError},
    reload::{Asked, ReloadError},
};

/// Connections the admin listener keeps, whatever the front door may.
const MAX_CONNECTIONS: u32 = 256;
/// How long the listener waits for its last replies once told to stop.
const LAST_REPLIES: Duration = Duration::from_secs(1);

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub type Reloading = Pin<Box<dyn Future<Output = Result<Value, ReloadError>> + Send>>;

pub type Steering = Pin<Box<dyn Future<Output = Result<Value, ReloadError>> + Send>>;

pub type Ordering = Pin<Box<dyn Future<Output = Result<Value, OrderError>> + Send>>;

pub struct Hooks {
    pub jobs: Option<Arc<Office>>,
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    pub state: Box<dyn Fn() -> Value + Send + Sync>,
    /// The workers and what they last reported, for `GET /admin/v1/workers`.
    pub workers: Box<dyn Fn() -> Value + Send + Sync>,
    pub history: Box<dyn Fn() -> Value + Send + Sync>,
    /// What changed after an event, by its number, and why.
    pub events: Box<dyn Fn(u64) -> Value + Send + Sync>,
    /// Reads the configuration again and swaps it whole or not at all; the value says what changed.
    pub reload: Box<dyn Fn(Asked) -> Reloading + Send + Sync>,
    /// Says what another objective would lead to, and puts it in force if asked to.
    pub objective: Box<dyn Fn(Objective) -> Steering + Send + Sync>,
    /// Says what an order would lead to, and lets it stand if asked to.
    pub order: Box<dyn Fn(Order) -> Ordering + Send + Sync>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Admin<B> {
    shared: Arc<ServerState<B>>,
    hooks: Hooks,
}

impl<B: Backend> Admin<B> {
    /// The admin side of the router whose front door has `shared`.
    pub fn new(shared: Arc<ServerState<B>>, hooks: Hooks) -> Self {
        Self { shared, hooks }
    }
}

/// Serves administration on `tcp` until `stop`, draining or not; hands over with the front door.
pub async fn serve<B: Backend>(tcp: TcpListener, admin: Arc<Admin<B>>, stop: impl Future) {
    let (phase, watch) = watch::channel(Phase::Serving);
    let shared = Arc::clone(&admin.shared.shared);
    let desk = Arc::new(Desk { shared: Arc::clone(&shared) });
    let routes =
        endpoints::router(admin).map_request(|routed: Routed<Routing>| routed.call.into_request());
    let service = layers::stack(&desk, routes);
    let max_connections = Some(MAX_CONNECTIONS);
    let mut front = shared.drain.watch();
    let listener = Listener { tcp, shared, max_connections, service };
    let handed = front.wait_for(|phase| *phase == Phase::HandedOver).map(drop);
    let (mut serving, mut stop) = (std::pin::pin!(listener.serve(watch)), std::pin::pin!(stop));
    tokio::select! {
        () = serving.as_mut() => return,
        _ = stop.as_mut() => {}
        () = handed => {
            phase.send_replace(Phase::HandedOver);
            tokio::select! {
                () = serving.as_mut() => return,
                _ = stop => {}
            }
        }
    }
    phase.send_replace(Phase::Closing);
    if timeout(LAST_REPLIES, serving).await.is_err() {
        phase.send_replace(Phase::Cut);
    }
}

struct Desk {
    shared: Arc<Shared>,
}

struct Routing {
    scope: Option<Scope>,
    audited: bool,
}

impl Door for Desk {
    type Route = Routing;
    type Body = Body;

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Never fails: a path that leads nowhere is answered behind the layers, so that a client without
    /// the scope does not learn of it.
    fn route(&self, head: &Parts) -> Result<Routing, InferError> {
        let path = head.uri.path();
        let audited = endpoints::is_audited(&head.method, path);
        Ok(Routing { scope: endpoints::scope(path), audited })
    }

    fn scope(&self, asked: &Routing) -> Option<Scope> {
        asked.scope
    }

    fn is_audited(&self, asked: &Routing) -> bool {
        asked.audited
    }

    fn traced<'a>(&self, _: &'a Routing) -> Option<&'a str> {
        None
    }

    fn refused(&self, _: &Routing, _: &InferError) {}

    fn render(error: &InferError) -> Response<Body> {
        reply::fail(error).map(Body::new)
    }
}

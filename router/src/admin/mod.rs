//! The admin listener: health, metrics, and what an operator may see and do.
//!
//! It has its own port and its own connections, so that a front door that is full or closing can
//! still be looked at. [`endpoints`] says what is served, and for which scope.

mod console;
pub mod endpoints;
mod error;
mod jobs;
mod lent;
mod objective;
mod orders;
mod routes;
mod scope;
mod views;

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use config::Objective;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use serde_json::Value;
use serve::{
    doors::oip::{Call, ServerState, audit, backend::Backend},
    drain::Phase,
    listener::{self, Answer, Limits, Peer},
};
use tls::ServerConfig;
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Instant, timeout},
};
use tower::ServiceExt;

use self::{
    lent::Lent,
    scope::{Arrival, RequireScope},
};
use crate::{
    office::Office,
    orders::{Order, OrderError},
    reload::ReloadError,
};

/// Connections the admin listener keeps, whatever the front door may.
const MAX_CONNECTIONS: u32 = 256;
/// How long the listener waits for its last replies once told to stop.
const LAST_REPLIES: Duration = Duration::from_secs(1);

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A reload under way.
pub type Reloading = Pin<Box<dyn Future<Output = Result<Value, ReloadError>> + Send>>;

/// A change of an objective under way.
pub type Steering = Pin<Box<dyn Future<Output = Result<Value, ReloadError>> + Send>>;

/// An order under way.
pub type Ordering = Pin<Box<dyn Future<Output = Result<Value, OrderError>> + Send>>;

/// What the listener asks of the program around it.
pub struct Hooks {
    /// Where training jobs are dealt with, if anywhere.
    pub jobs: Option<Arc<Office>>,
    /// Every metric, in Prometheus' text format.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// What is going on, as one document.
    pub state: Box<dyn Fn() -> Value + Send + Sync>,
    /// The workers and what they last reported, for `GET /admin/v1/workers`.
    pub workers: Box<dyn Fn() -> Value + Send + Sync>,
    /// What went on in the last minutes, by model.
    pub history: Box<dyn Fn() -> Value + Send + Sync>,
    /// Reads the configuration again and swaps it whole or not at all; the value says what changed.
    pub reload: Box<dyn Fn() -> Reloading + Send + Sync>,
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

/// The admin listener's state.
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

/// Serves administration on `tcp` until `stop`, draining or not.
pub async fn serve<B: Backend>(tcp: TcpListener, admin: Arc<Admin<B>>, stop: impl Future) {
    let (phase, watch) = watch::channel(Phase::Serving);
    let shared = Arc::clone(&admin.shared);
    let desk = Arc::new(Desk {
        router: RequireScope::new(Arc::clone(&shared), endpoints::router(admin)),
        shared,
    });
    let mut serving = std::pin::pin!(listener::serve(tcp, desk, watch));
    tokio::select! {
        () = serving.as_mut() => return,
        _ = stop => {}
    }
    phase.send_replace(Phase::Closing);
    if timeout(LAST_REPLIES, serving).await.is_err() {
        phase.send_replace(Phase::Cut);
    }
}

/// Between a connection and the routes.
struct Desk<B> {
    shared: Arc<ServerState<B>>,
    router: RequireScope<B, Router>,
}

impl<B: Backend> Answer for Desk<B> {
    type Body = Body;

    fn limits(&self) -> Limits {
        let limits = Limits::from(&**self.shared.settings.load());
        Limits { max_connections: MAX_CONNECTIONS, ..limits }
    }

    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.shared.http_tls()
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<Body> {
        let arrived = Instant::now();
        let (head, body) = request.into_parts();
        let audited = endpoints::is_audited(&head.method, head.uri.path());
        let who = audited.then(|| self.shared.access.load().name_of(&head.headers, peer.address));
        let (body, unread) = Lent::new(body);
        let mut asked = Request::from_parts(head.clone(), body);
        asked.extensions_mut().insert(Arrival { peer: peer.address, at: arrived });
        let Ok(response) = self.router.clone().oneshot(asked).await;
        let call = Call { head: &head, peer: &peer, arrived };
        if let Some(who) = who {
            audit(&who, &call, response.status());
        }
        self.shared.finish(&call, unread.take(), response)
    }
}

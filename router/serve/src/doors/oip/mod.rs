//! The door of inference: the Open Inference Protocol over HTTP/1.1 and HTTP/2.
//!
//! Requests are routed by hand and answered by plain functions behind the layers: the
//! path of an inference request is one match, one body, one request, one response, with nothing boxed on
//! the way.

pub mod backend;
mod infer;
pub mod models;
mod route;

use std::{ops::Deref, sync::Arc};

use config::{RouterSettings, Scope};
use http::{Response, request::Parts};
use tokio::net::TcpListener;
use tower::service_fn;

use self::backend::Backend;
use crate::{
    auth::Access,
    drain::Drain,
    error::InferError,
    layers::{self, Door, Routed},
    listener::Listener,
    model::Served,
    reply::{self, Reply},
    shared::Shared,
};

pub use self::route::{Endpoint, ROUTES, Route, unknown};

/// The models, and what this door shares with every other.
#[derive(Debug)]
pub struct ServerState<B> {
    pub backend: Arc<B>,
    pub shared: Arc<Shared>,
}

/// What a path asks for, with the model it names or why there is none.
type Found<B> = Route<Result<Arc<<B as Backend>::Model>, InferError>>;

impl<B> Deref for ServerState<B> {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl<B: Backend> ServerState<B> {
    /// The state of a router that serves `backend`.
    pub fn new(backend: B, settings: RouterSettings, access: Access, drain: Arc<Drain>) -> Self {
        let shared = Arc::new(Shared::new(settings, access, drain));
        let backend = Arc::new(backend);
        let late = Arc::downgrade(&backend);
        let drop_late = move |bytes| late.upgrade().map_or(0, |backend| backend.drop_late(bytes));
        shared.buffers.relieve_by(drop_late);
        Self { backend, shared }
    }

    /// Why the router is not ready; empty if it is.
    pub fn problems(&self) -> Vec<String> {
        let draining = self.drain.is_draining().then(|| "draining".to_owned());
        let counted = self.backend.checks().into_iter().filter(|check| check.counts);
        let failed = counted.filter_map(|check| {
            let problem = check.problem?;
            Some(format!("{}: {problem}", check.name))
        });
        draining.into_iter().chain(failed).collect()
    }

    async fn answer(
        self: Arc<Self>,
        routed: Routed<Found<B>>,
    ) -> Result<Response<Reply>, InferError> {
        let Routed { route, mut call } = routed;
        match route {
            Route::Infer(found) => infer::infer(&self, &mut call, found).await,
            Route::Live => Ok(models::live()),
            Route::Ready => Ok(models::ready(&self)),
            Route::Root => Ok(models::root(&self, &call.head.headers)),
            Route::Server => Ok(models::server()),
            Route::Names => Ok(models::names(&self)),
            Route::Model(found, question) => models::about(&*found?, question),
            Route::AllStats => Ok(models::all_stats(&self)),
            Route::Index => models::index(&self, &mut call).await,
            Route::Load(found) => models::order(&self, &mut call, found, true).await,
            Route::Unload(found) => models::order(&self, &mut call, found, false).await,
            Route::Unsupported(what) => Err(InferError::Unsupported { what }),
        }
    }
}

impl<B: Backend> Door for ServerState<B> {
    type Route = Found<B>;
    type Body = Reply;

    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn route(&self, head: &Parts) -> Result<Found<B>, InferError> {
        let route = Route::of(&head.method, head.uri.path())?;
        let backend = &self.backend;
        Ok(route.map(|target| target.resolve(|name| backend.model(name), || backend.models())))
    }

    fn scope(&self, route: &Found<B>) -> Option<Scope> {
        route.scope()
    }

    fn is_audited(&self, route: &Found<B>) -> bool {
        route.is_audited()
    }

    fn traced<'a>(&self, route: &'a Found<B>) -> Option<&'a str> {
        let Route::Infer(found) = route else { return None };
        found.as_ref().map_or_else(InferError::unknown_model, |model| Some(model.name()))
    }

    fn refused(&self, route: &Found<B>, error: &InferError) {
        if let Route::Infer(found) = route {
            self.backend.refused(found.as_deref().ok(), error);
        }
    }

    fn render(error: &InferError) -> Response<Reply> {
        reply::fail(error)
    }
}

/// Serves inference on `tcp` until the drain has closed the listener and the last connection is done.
pub async fn serve<B: Backend>(tcp: TcpListener, state: Arc<ServerState<B>>) {
    let (shared, phase) = (Arc::clone(&state.shared), state.drain.watch());
    let door = Arc::clone(&state);
    let answer = service_fn(move |routed| Arc::clone(&door).answer(routed));
    let service = layers::stack(&state, answer);
    Listener { tcp, shared, max_connections: None, service }.serve(phase).await;
}

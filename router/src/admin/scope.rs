//! Lets a request pass only if its key has the scope of its endpoint.
//!
//! It stands before every route, the 404 and 405 under `/admin` included: a route cannot be left
//! open by forgetting a check, and a client without the scope does not learn what there is.

use std::{
    future::{Ready, ready},
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use axum::response::{IntoResponse, Response};
use config::Scope;
use futures_util::future::Either;
use http::Request;
use serve::{
    doors::oip::{ServerState, backend::Backend},
    error::InferError,
};
use tokio::time::Instant;
use tower::Service;

use super::{endpoints, error::AdminError};

/// Where a request came from and when, carried as a request extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) peer: SocketAddr,
    pub(super) at: Instant,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct RequireScope<B, S> {
    shared: Arc<ServerState<B>>,
    inner: S,
}

impl<B: Backend, S> RequireScope<B, S> {
    /// `inner` for those that have a scope, among the keys that `shared` knows at each request.
    pub(super) fn new(shared: Arc<ServerState<B>>, inner: S) -> Self {
        Self { shared, inner }
    }

    fn check<R>(&self, request: &Request<R>) -> Result<(), InferError> {
        let Some(&Arrival { peer, .. }) = request.extensions().get() else {
            return Err(InferError::Internal { what: "a request does not say where it came from" });
        };
        let access = self.shared.access.load();
        let may = |scope| access.require(scope, request.headers(), peer);
        match endpoints::scope(request.uri().path()) {
            None => Ok(()),
            Some(Scope::Admin) => may(Scope::Admin),
            Some(scope) => may(scope).or_else(|denied| may(Scope::Admin).map_err(|_| denied)),
        }
    }
}

impl<B, S: Clone> Clone for RequireScope<B, S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), inner: self.inner.clone() }
    }
}

impl<B, S, R> Service<Request<R>> for RequireScope<B, S>
where
    B: Backend,
    S: Service<Request<R>, Response = Response>,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Either<Ready<Result<Response, S::Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        match self.check(&request) {
            Ok(()) => Either::Right(self.inner.call(request)),
            Err(error) => Either::Left(ready(Ok(AdminError::from(error).into_response()))),
        }
    }
}

//! A layer that lets a request pass only if its caller may administer the router, or, for what is
//! about jobs, may run jobs.
//!
//! It stands before everything under `/admin`, the 404 and 405 there included: a route added later
//! cannot be left open by forgetting a check, and whoever may not ask does not learn what there is
//! to ask. Health and metrics are outside of it, since probes and scrapers bring no key.

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
use tower::{Layer, Service};

use super::error::AdminError;

/// Where a request came from and when, carried as a request extension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) peer: SocketAddr,
    pub(super) at: Instant,
}

/// Makes [`RequireAdmin`] services.
#[derive(Debug)]
pub(super) struct RequireAdminLayer<B> {
    shared: Arc<ServerState<B>>,
}

impl<B> RequireAdminLayer<B> {
    /// Asks the callers known to `shared`, as they are at each request.
    pub(super) fn new(shared: Arc<ServerState<B>>) -> Self {
        Self { shared }
    }
}

impl<B> Clone for RequireAdminLayer<B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<B, S> Layer<S> for RequireAdminLayer<B> {
    type Service = RequireAdmin<B, S>;

    fn layer(&self, inner: S) -> RequireAdmin<B, S> {
        RequireAdmin { shared: Arc::clone(&self.shared), inner }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct RequireAdmin<B, S> {
    shared: Arc<ServerState<B>>,
    inner: S,
}

impl<B: Backend, S> RequireAdmin<B, S> {
    fn check<R>(&self, request: &Request<R>) -> Result<(), InferError> {
        let Some(&Arrival { peer, .. }) = request.extensions().get() else {
            return Err(InferError::Internal { what: "a request does not say where it came from" });
        };
        let access = self.shared.access.load();
        let may = |scope| access.require(scope, request.headers(), peer);
        if is_of_jobs(request.uri().path()) {
            return may(Scope::Jobs).or_else(|refused| may(Scope::Admin).map_err(|_| refused));
        }
        may(Scope::Admin)
    }
}

/// Whether a path under `/admin` is for those who may run jobs.
fn is_of_jobs(path: &str) -> bool {
    path.strip_prefix("/v1/jobs").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl<B, S: Clone> Clone for RequireAdmin<B, S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), inner: self.inner.clone() }
    }
}

impl<B, S, R> Service<Request<R>> for RequireAdmin<B, S>
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

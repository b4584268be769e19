//! One line of the access log for each response.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use config::AccessLog as Wanted;
use http::{Method, Response, Uri};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service, layer::layer_fn};
use tracing::{Level, enabled};

use super::arrive::REQUEST_ID;
use crate::{listener::Arrival, shared::Shared};

/// Writes lines at `debug`, but errors at `info` where every request is wanted.
#[derive(Clone, Debug)]
pub struct AccessLog<S> {
    shared: Arc<Shared>,
    inner: S,
}

pub(super) fn layer<S>(shared: &Arc<Shared>) -> impl Layer<S, Service = AccessLog<S>> {
    let shared = Arc::clone(shared);
    layer_fn(move |inner| AccessLog { shared: Arc::clone(&shared), inner })
}

/// What a line says that the response does not.
#[derive(Debug)]
struct Line {
    wanted: Wanted,
    peer: SocketAddr,
    method: Method,
    uri: Uri,
    arrived: Instant,
}

impl Line {
    /// The line of a request that may have one.
    fn of(wanted: Wanted, arrival: &Arrival) -> Option<Self> {
        let may_have_one = match wanted {
            Wanted::Off => false,
            Wanted::Errors => enabled!(target: "access", Level::DEBUG),
            Wanted::All => enabled!(target: "access", Level::INFO),
        };
        let Arrival { request, peer, at } = arrival;
        may_have_one.then(|| Self {
            wanted,
            peer: peer.address,
            method: request.method().clone(),
            uri: request.uri().clone(),
            arrived: *at,
        })
    }

    fn write<R>(self, response: &Response<R>) {
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "access",
                    peer = %self.peer,
                    method = %self.method,
                    path = self.uri.path(),
                    status = response.status().as_u16(),
                    took_us = self.arrived.elapsed().as_micros() as u64,
                    id = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()),
                    "answered"
                )
            };
        }
        match (self.wanted, response.status().is_success()) {
            (Wanted::Off, _) | (Wanted::Errors, true) => {}
            (Wanted::All, false) => line!(info),
            (Wanted::All, true) | (Wanted::Errors, false) => line!(debug),
        }
    }
}

impl<S: Service<Arrival, Response = Response<B>>, B> Service<Arrival> for AccessLog<S> {
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Logged<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, arrival: Arrival) -> Self::Future {
        let line = Line::of(self.shared.settings.load().access_log, &arrival);
        Logged { inner: self.inner.call(arrival), line }
    }
}

pin_project! {
    /// A response that is written to the access log.
    #[derive(Debug)]
    pub struct Logged<F> {
        #[pin]
        inner: F,
        line: Option<Line>,
    }
}

impl<F: Future<Output = Result<Response<B>, E>>, B, E> Future for Logged<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answered = ready!(this.inner.poll(cx));
        if let (Ok(response), Some(line)) = (&answered, this.line.take()) {
            line.write(response);
        }
        Poll::Ready(answered)
    }
}

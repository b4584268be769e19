//! One line of the access log for each request, written by hand.
//!
//! Which requests have one is for `access_log` to say, not for the log level. A line costs a request
//! about a microsecond: one buffer, one push into the queue of the log.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use config::AccessLog as Wanted;
use http::{HeaderValue, Method, Response, StatusCode, Uri};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{Layer, Service, layer::layer_fn};
use tracing::Level;

use super::arrive::REQUEST_ID;
use crate::{
    listener::Arrival,
    note::{Note, Reason},
    request::Spent,
    shared::Shared,
};

/// The target of its lines.
const TARGET: &str = "access";
/// What a path has before the name of a model.
const MODELS: &str = "/models/";

#[derive(Clone, Debug)]
pub struct AccessLog<S> {
    shared: Arc<Shared>,
    inner: S,
}

pub(super) fn layer<S>(shared: &Arc<Shared>) -> impl Layer<S, Service = AccessLog<S>> {
    let shared = Arc::clone(shared);
    layer_fn(move |inner| AccessLog { shared: Arc::clone(&shared), inner })
}

/// The line of a request, written when its response is made or, without one, when it is dropped.
#[derive(Debug)]
struct Line {
    wanted: Wanted,
    peer: SocketAddr,
    method: Method,
    uri: Uri,
    arrived: Instant,
    note: Arc<Note>,
    is_written: bool,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
struct End<'r> {
    status: Option<StatusCode>,
    id: Option<&'r HeaderValue>,
    reason: Option<&'static str>,
}

impl Line {
    /// The line of a request that may have one. Its note goes with the request.
    fn of(wanted: Wanted, arrival: &mut Arrival) -> Option<Self> {
        if wanted == Wanted::Off {
            return None;
        }
        let note = Arc::<Note>::default();
        arrival.note = Some(Arc::clone(&note));
        Some(Self {
            wanted,
            peer: arrival.peer.address,
            method: arrival.request.method().clone(),
            uri: arrival.request.uri().clone(),
            arrived: arrival.at,
            note,
            is_written: false,
        })
    }

    fn answered<R>(&mut self, response: &Response<R>) {
        self.is_written = true;
        let status = response.status();
        if self.wanted == Wanted::Errors && !status.is_client_error() && !status.is_server_error() {
            return;
        }
        let reason = response.extensions().get().map(|Reason(reason)| *reason);
        let id = response.headers().get(REQUEST_ID);
        self.write("request answered", End { status: Some(status), id, reason });
    }

    fn write(&self, message: &str, end: End<'_>) {
        let noted = self.note.noted();
        logging::write(Level::INFO, TARGET, message, |line| {
            line.display("peer", self.peer);
            line.text("method", self.method.as_str());
            line.text("path", self.uri.path());
            if let Some(model) = model(self.uri.path()) {
                line.text("model", model);
            }
            if let Some(tenant) = &noted.tenant {
                line.text("tenant", tenant);
            }
            if let Some(status) = end.status {
                line.number("status", status.as_u16().into());
            }
            if let Some(reason) = noted.reason.or(end.reason) {
                line.text("reason", reason);
            }
            line.micros("took_us", self.arrived.elapsed());
            if let Some(Spent { queued, ran }) = noted.spent {
                line.micros("queue_us", queued);
                line.micros("run_us", ran);
            }
            if let Some(id) = end.id.and_then(|id| id.to_str().ok()) {
                line.text("id", id);
            }
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.is_written {
            let reason = Some("abandoned");
            self.write("request abandoned by its client", End { status: None, id: None, reason });
        }
    }
}

/// The model that a path names, as the path has it.
fn model(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once(MODELS)?;
    rest.split('/').next().filter(|name| !name.is_empty())
}

impl<S: Service<Arrival, Response = Response<B>>, B> Service<Arrival> for AccessLog<S> {
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Logged<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut arrival: Arrival) -> Self::Future {
        let line = Line::of(self.shared.settings.load().access_log, &mut arrival);
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
        if let (Ok(response), Some(mut line)) = (&answered, this.line.take()) {
            line.answered(response);
        }
        Poll::Ready(answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_of_a_line_is_the_one_the_path_names() {
        for (path, named) in [
            ("/v2/models/digits/infer", Some("digits")),
            ("/v2/models/digits", Some("digits")),
            ("/v2/repository/models/digits/unload", Some("digits")),
            ("/v2/models/", None),
            ("/v2", None),
        ] {
            assert_eq!(model(path), named, "{path}");
        }
    }
}

//! Follows the W3C trace context of a request, and renders the error it may end with.
//!
//! Both in one layer, because a trace names the reason of an error, and the response to an error names
//! the trace.

use std::{
    convert::Infallible,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Response;
use pin_project_lite::pin_project;
use tower::{Layer, Service, layer::layer_fn};

use super::{Call, Door, Routed};
use crate::{
    error::InferError,
    note::Note,
    trace::{RequestSpan, TRACE_RESPONSE},
};

#[derive(Debug)]
pub struct Trace<D, S> {
    door: Arc<D>,
    inner: S,
}

pub(super) fn layer<D, S>(door: &Arc<D>) -> impl Layer<S, Service = Trace<D, S>> {
    let door = Arc::clone(door);
    layer_fn(move |inner| Trace { door: Arc::clone(&door), inner })
}

impl<D, S: Clone> Clone for Trace<D, S> {
    fn clone(&self) -> Self {
        Self { door: Arc::clone(&self.door), inner: self.inner.clone() }
    }
}

impl<D: Door, S> Trace<D, S> {
    fn begin(&self, route: &D::Route, call: &Call) -> Option<RequestSpan> {
        let model = self.door.traced(route)?;
        let tracer = self.door.shared().tracer.load();
        let mut span = tracer.as_ref()?.begin(&call.head.headers, call.context.arrived)?;
        span.asks(model);
        Some(span)
    }
}

impl<D, S> Service<Routed<D::Route>> for Trace<D, S>
where
    D: Door,
    S: Service<Routed<D::Route>, Response = Response<D::Body>, Error = InferError>,
{
    type Response = Response<D::Body>;
    type Error = Infallible;
    type Future = Tracing<D, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx).map(|_| Ok(()))
    }

    fn call(&mut self, mut routed: Routed<D::Route>) -> Self::Future {
        let span = self.begin(&routed.route, &routed.call);
        routed.call.context.traced = span.as_ref().map(RequestSpan::traced);
        let note = routed.call.context.note.clone();
        Tracing { inner: self.inner.call(routed), span, note, door: PhantomData }
    }
}

pin_project! {
    /// A response whose span ends with it. Dropped before, the client hung up.
    #[derive(Debug)]
    pub struct Tracing<D, F> {
        #[pin]
        inner: F,
        span: Option<RequestSpan>,
        note: Option<Arc<Note>>,
        door: PhantomData<fn() -> D>,
    }
}

impl<D, F> Future for Tracing<D, F>
where
    D: Door,
    F: Future<Output = Result<Response<D::Body>, InferError>>,
{
    type Output = Result<Response<D::Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (mut response, reason) = match ready!(this.inner.poll(cx)) {
            Ok(response) => (response, None),
            Err(error) => {
                this.note.iter().for_each(|note| note.reason(error.reason()));
                (D::render(&error), Some(error.reason()))
            }
        };
        if let Some(span) = this.span.take() {
            if let Some(value) = span.response() {
                response.headers_mut().insert(TRACE_RESPONSE, value);
            }
            span.answered(response.status(), reason);
        }
        Poll::Ready(Ok(response))
    }
}

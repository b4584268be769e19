//! A response that keeps its connection busy, from the head of its request to its last byte.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderValue, Response, Version, header};
use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::activity::Busy;
use crate::drain::Drain;

pin_project! {
    pub(super) struct Answering<F> {
        #[pin]
        pub(super) inner: F,
        pub(super) busy: Option<Busy>,
        pub(super) drain: Arc<Drain>,
        pub(super) version: Version,
    }
}

impl<F: Future<Output = Result<Response<R>, Infallible>>, R> Future for Answering<F> {
    type Output = Result<Response<Held<R>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.inner.poll(cx));
        if this.drain.is_draining() && *this.version < Version::HTTP_2 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let busy = this.busy.take();
        Poll::Ready(Ok(response.map(|body| Held { body, _busy: busy })))
    }
}

/// A body that keeps its connection busy until the last byte is handed over.
#[derive(Debug)]
pub(super) struct Held<R> {
    body: R,
    _busy: Option<Busy>,
}

impl<R: Body + Unpin> Body for Held<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

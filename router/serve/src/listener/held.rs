//! A response body that keeps its connection busy.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use hyper::body::{Body, Frame, SizeHint};

use super::activity::Busy;

/// A body that keeps its connection busy until the last byte is handed over.
#[derive(Debug)]
pub(super) struct Held<R> {
    body: R,
    _busy: Busy,
}

impl<R> Held<R> {
    /// `body`, for which the connection is `busy`.
    pub(super) fn new(body: R, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
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

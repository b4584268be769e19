//! A request body that comes back once nobody reads it any more.
//!
//! A handler drops the body it has no use for, and a connection that is closed on unread bytes is
//! reset, so that the client would never see the reply. What is left must be read on by whoever
//! knows the connection, after the handler is done.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Lent {
    /// Present until the drop.
    loan: Option<(Incoming, oneshot::Sender<Incoming>)>,
}

/// Where a [`Lent`] body will be once it is dropped.
#[derive(Debug)]
pub(super) struct Unread(oneshot::Receiver<Incoming>);

impl Lent {
    /// Lends `body` out.
    pub(super) fn new(body: Incoming) -> (Self, Unread) {
        let (back, unread) = oneshot::channel();
        (Self { loan: Some((body, back)) }, Unread(unread))
    }

    fn body(&self) -> Option<&Incoming> {
        self.loan.as_ref().map(|(body, _)| body)
    }
}

impl Unread {
    /// The body, unless someone still reads it.
    pub(super) fn take(mut self) -> Option<Incoming> {
        self.0.try_recv().ok()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some((body, back)) = self.loan.take() {
            // Nobody waits for it if the client hung up.
            let _: Result<(), Incoming> = back.send(body);
        }
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.loan {
            Some((body, _)) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body().map_or_else(SizeHint::default, Body::size_hint)
    }
}

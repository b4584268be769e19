//! Lets a request pass only if its key has the scope it needs and its tenant's quota has room for it,
//! and writes the audit log.
//!
//! It stands before every route, a 404 under `/admin` included: a route cannot be left open by
//! forgetting a check, and a client without the scope does not learn what there is.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use config::Scope;
use http::{Method, Response, StatusCode, Uri};
use pin_project_lite::pin_project;
use tower::{Layer, Service, layer::layer_fn};

use super::{Call, Door, Routed};
use crate::{auth::Pass, error::InferError};

#[derive(Debug)]
pub struct Authenticate<D, S> {
    door: Arc<D>,
    inner: S,
}

pub(super) fn layer<D, S>(door: &Arc<D>) -> impl Layer<S, Service = Authenticate<D, S>> {
    let door = Arc::clone(door);
    layer_fn(move |inner| Authenticate { door: Arc::clone(&door), inner })
}

impl<D, S: Clone> Clone for Authenticate<D, S> {
    fn clone(&self) -> Self {
        Self { door: Arc::clone(&self.door), inner: self.inner.clone() }
    }
}

/// Lets a call pass, and notes its caller; what is returned counts against its quota until dropped.
fn admit(scope: Option<Scope>, call: &mut Call) -> Result<Option<Pass>, InferError> {
    let (headers, context) = (&call.head.headers, &mut call.context);
    let may = |scope| context.access.require(scope, headers, context.peer.address);
    match scope {
        None => Ok(None),
        Some(Scope::Infer) => {
            let admitted = context.access.admit(headers, context.arrived)?;
            context.caller = admitted.caller;
            if let Some(note) = &context.note {
                note.tenant(context.access.name(admitted.caller));
            }
            Ok(admitted.pass)
        }
        Some(Scope::Admin) => may(Scope::Admin).map(|()| None),
        Some(Scope::Jobs) => {
            let by_any = may(Scope::Jobs).or_else(|denied| may(Scope::Admin).map_err(|_| denied));
            by_any.map(|()| None)
        }
    }
}

impl<D, S> Service<Routed<D::Route>> for Authenticate<D, S>
where
    D: Door,
    S: Service<Routed<D::Route>, Response = Response<D::Body>, Error: Into<InferError>>,
{
    type Response = Response<D::Body>;
    type Error = InferError;
    type Future = Admitted<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), InferError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut routed: Routed<D::Route>) -> Self::Future {
        let Routed { route, call } = &mut routed;
        let audit = self.door.is_audited(route).then(|| Box::new(Audit::of(call)));
        let answer = match admit(self.door.scope(route), call) {
            Ok(pass) => Answer::Pending { inner: self.inner.call(routed), pass },
            Err(error) => {
                self.door.refused(route, &error);
                Answer::Refused { error: Some(error) }
            }
        };
        Admitted { answer, audit }
    }
}

pin_project! {
    /// The response to a request that was let in or refused.
    #[derive(Debug)]
    pub struct Admitted<F> {
        #[pin]
        answer: Answer<F>,
        audit: Option<Box<Audit>>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = AnswerProjection]
    enum Answer<F> {
        Pending { #[pin] inner: F, pass: Option<Pass> },
        Refused { error: Option<InferError> },
    }
}

impl<F: Future<Output = Result<Response<B>, E>>, B, E: Into<InferError>> Future for Admitted<F> {
    type Output = Result<Response<B>, InferError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answered = match this.answer.project() {
            AnswerProjection::Pending { inner, pass } => {
                let answered = ready!(inner.poll(cx));
                drop(pass.take());
                answered.map_err(Into::into)
            }
            AnswerProjection::Refused { error } => {
                Err(error.take().expect("a future is not polled after it is ready"))
            }
        };
        if let Some(audit) = this.audit.take() {
            audit.write(answered.as_ref().map_or_else(InferError::status, Response::status));
        }
        Poll::Ready(answered)
    }
}

/// Who did what.
#[derive(Debug)]
struct Audit {
    who: String,
    peer: SocketAddr,
    method: Method,
    uri: Uri,
}

impl Audit {
    fn of(call: &Call) -> Self {
        let peer = call.context.peer.address;
        Self {
            who: call.context.access.name_of(&call.head.headers, peer),
            peer,
            method: call.head.method.clone(),
            uri: call.head.uri.clone(),
        }
    }

    /// An act that was refused did nothing, and anybody could fill the log with those, so they are
    /// told at `debug`.
    fn write(&self, status: StatusCode) {
        let Self { who, peer, method, uri } = self;
        let (path, status) = (uri.path(), status.as_u16());
        match status {
            401 | 403 => {
                tracing::debug!(target: "audit", who, %peer, %method, path, status, "refused");
            }
            _ => tracing::info!(target: "audit", who, %peer, %method, path, status, "administered"),
        }
    }
}

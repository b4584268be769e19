//! Gives a request its id, and finds what it asks for.

use std::{
    convert::Infallible,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, ready},
};

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service, layer::layer_fn};

use super::{Call, Context, Door, Routed};
use crate::{auth::Caller, listener::Arrival};

/// The header that carries a request's id, both ways.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id a client may give its request.
const MAX_ID_BYTES: usize = 128;

#[derive(Debug)]
pub struct Arrive<D, S> {
    door: Arc<D>,
    ids: Arc<RequestIds>,
    inner: S,
}

pub(super) fn layer<D, S>(door: &Arc<D>) -> impl Layer<S, Service = Arrive<D, S>> {
    let (door, ids) = (Arc::clone(door), Arc::<RequestIds>::default());
    layer_fn(move |inner| Arrive { door: Arc::clone(&door), ids: Arc::clone(&ids), inner })
}

impl<D, S: Clone> Clone for Arrive<D, S> {
    fn clone(&self) -> Self {
        let (door, ids) = (Arc::clone(&self.door), Arc::clone(&self.ids));
        Self { door, ids, inner: self.inner.clone() }
    }
}

impl<D, S> Service<Arrival> for Arrive<D, S>
where
    D: Door,
    S: Service<Routed<D::Route>, Response = Response<D::Body>, Error = Infallible>,
{
    type Response = Response<D::Body>;
    type Error = Infallible;
    type Future = Identified<S::Future, D::Body>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, arrival: Arrival) -> Self::Future {
        let Arrival { request, peer, at, note } = arrival;
        let (head, body) = request.into_parts();
        let id = self.ids.of(&head.headers);
        let answer = match self.door.route(&head) {
            Ok(route) => {
                let access = self.door.shared().access.load_full();
                let caller = Caller::UNKNOWN;
                let context = Context { peer, arrived: at, access, caller, traced: None, note };
                let call = Call { head, body, context };
                Answer::Pending { inner: self.inner.call(Routed { route, call }) }
            }
            Err(error) => {
                note.iter().for_each(|note| note.reason(error.reason()));
                Answer::Nowhere { response: Some(D::render(&error)) }
            }
        };
        Identified { answer, id: Some(id) }
    }
}

pin_project! {
    /// A response that gets the id of its request.
    #[derive(Debug)]
    pub struct Identified<F, B> {
        #[pin]
        answer: Answer<F, B>,
        id: Option<HeaderValue>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = AnswerProjection]
    enum Answer<F, B> {
        Pending { #[pin] inner: F },
        Nowhere { response: Option<Response<B>> },
    }
}

impl<F: Future<Output = Result<Response<B>, Infallible>>, B> Future for Identified<F, B> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Ok(mut response) = match this.answer.project() {
            AnswerProjection::Pending { inner } => ready!(inner.poll(cx)),
            AnswerProjection::Nowhere { response } => {
                Ok(response.take().expect("a future is not polled after it is ready"))
            }
        };
        if let Some(id) = this.id.take() {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        Poll::Ready(Ok(response))
    }
}

/// Ids for requests that bring none: a random start for this process, then a count.
#[derive(Debug)]
struct RequestIds {
    process: u32,
    next: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> Self {
        let process = (RandomState::new().hash_one(0) >> 32) as u32;
        Self { process, next: AtomicU64::new(1) }
    }
}

impl RequestIds {
    /// The client's own id if it is short and printable, else a new one.
    fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let is_fit = |id: &&HeaderValue| {
            let id = id.as_bytes();
            (1..=MAX_ID_BYTES).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
        };
        headers.get(REQUEST_ID).filter(is_fit).cloned().unwrap_or_else(|| self.make())
    }

    fn make(&self) -> HeaderValue {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let number = (u128::from(self.process) << 64) | u128::from(count);
        let mut id = [0; 24];
        for (place, digit) in id.iter_mut().rev().enumerate() {
            *digit = DIGITS[(number >> (4 * place)) as usize & 15];
        }
        HeaderValue::from_bytes(&id).unwrap_or(HeaderValue::from_static("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_kept_if_short_and_printable_and_made_otherwise() {
        let ids = RequestIds::default();
        let of = |id: &str| {
            ids.of(&HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_str(id).unwrap())]))
        };
        assert_eq!(of("abc-1"), "abc-1");
        assert_ne!(of("a b"), "a b");
        assert_ne!(of(&"x".repeat(129)), "x".repeat(129).as_str());
        let (one, two) = (ids.of(&HeaderMap::new()), ids.of(&HeaderMap::new()));
        assert_ne!(one, two);
        assert_eq!(one.len(), 24);
    }
}

//! The inference listener: Open Inference Protocol over HTTP/1.1 and HTTP/2.
//!
//! Requests are routed by hand and answered by plain functions over hyper: the path of an inference
//! request is one match, one body, one request, one reply, with nothing boxed on the way. Everything
//! that can change while the router runs (limits, callers) is read per connection or per request.

pub mod backend;
mod infer;
pub mod models;
mod route;

use std::{ops::Deref, sync::Arc};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::{AccessLog, RouterSettings, Tls};
use http::{HeaderValue, Request, Response, StatusCode, Version, header, request::Parts};
use hyper::body::Incoming;
use tls::ServerConfig;
use tokio::{net::TcpListener, time::Instant};

use self::{
    backend::Backend,
    route::{Route, Target},
};
use crate::{
    auth::Access,
    body::{self, BodyLimits, room::Room},
    drain::Drain,
    error::InferError,
    listener::{self, Answer, Limits, Peer},
    model::Served,
    reply::{self, REQUEST_ID, Reply, RequestIds},
    trace::{TRACE_RESPONSE, Tracer},
};

pub use self::route::{Endpoint, ROUTES, unknown};

/// The inference listener: the models, and what it shares with every other listener.
#[derive(Debug)]
pub struct ServerState<B> {
    /// The models.
    pub backend: Arc<B>,
    /// What it shares.
    pub shared: Arc<Shared>,
}

/// Everything the listeners share.
#[derive(Debug)]
pub struct Shared {
    /// Limits and the access log; swapped on reload.
    pub settings: ArcSwap<RouterSettings>,
    /// Callers and their rates; swapped on reload.
    pub access: ArcSwap<Access>,
    /// Whether the router is stopping.
    pub drain: Arc<Drain>,
    /// Traces requests; empty if none are.
    pub tracer: ArcSwapOption<Tracer>,
    /// TLS on every listener; empty if they are plain. Swapped on reload.
    pub tls: ArcSwapOption<Tls>,
    ids: RequestIds,
    room: Arc<Room>,
}

/// The part of a request that is known before its body.
#[derive(Debug)]
pub struct Call<'a> {
    /// Its head.
    pub head: &'a Parts,
    /// The client it came from.
    pub peer: &'a Peer,
    /// When its head was read.
    pub arrived: Instant,
}

impl Shared {
    /// Without traces and TLS, which may come later.
    pub fn new(settings: RouterSettings, access: Access, drain: Arc<Drain>) -> Self {
        let (settings, access) = (ArcSwap::from_pointee(settings), ArcSwap::from_pointee(access));
        let (tracer, tls) = (ArcSwapOption::empty(), ArcSwapOption::empty());
        let (ids, room) = (RequestIds::default(), Arc::default());
        Self { settings, access, drain, tracer, tls, ids, room }
    }

    /// The TLS of HTTP connections that begin now.
    pub fn http_tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.load().as_ref().map(|tls| Arc::clone(&tls.http))
    }

    /// What a request's body may take, as the settings are now.
    fn body_limits(&self) -> BodyLimits {
        let settings = self.settings.load();
        BodyLimits::new(&settings, self.room.share(settings.max_buffered_bytes))
    }

    /// Gives a reply what every reply has, and the rest of an unread body its end.
    pub fn finish<R>(
        &self,
        call: &Call<'_>,
        unread: Option<Incoming>,
        mut response: Response<R>,
    ) -> Response<R> {
        let settings = self.settings.load();
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, self.ids.of(&call.head.headers));
        if self.drain.is_draining() && call.head.version < Version::HTTP_2 {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(body) = unread {
            body::discard(&call.head.headers, call.head.version, body, settings.max_body_bytes);
        }
        log(settings.access_log, call, &response);
        response
    }
}

impl<B> Deref for ServerState<B> {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl<B: Backend> ServerState<B> {
    /// The state of a router that serves `backend`.
    pub fn new(backend: B, settings: RouterSettings, access: Access, drain: Arc<Drain>) -> Self {
        let shared = Arc::new(Shared::new(settings, access, drain));
        Self { backend: Arc::new(backend), shared }
    }

    /// Why the router is not ready; empty if it is.
    pub fn problems(&self) -> Vec<String> {
        let draining = self.drain.is_draining().then(|| "draining".to_owned());
        let failed = self.backend.checks().into_iter().filter_map(|check| {
            let problem = check.problem?;
            Some(format!("{}: {problem}", check.name))
        });
        draining.into_iter().chain(failed).collect()
    }

    fn find(&self, target: &Target<'_>) -> Result<Arc<B::Model>, InferError> {
        let Some(model) = self.backend.model(&target.model) else {
            return Err(InferError::UnknownModel { model: clipped(&target.model) });
        };
        match &target.version {
            Some(version) if version != model.version() => Err(InferError::UnknownVersion {
                model: model.name().to_owned(),
                version: clipped(version),
                available: model.version().to_owned(),
            }),
            Some(_) | None => Ok(model),
        }
    }

    async fn route(
        &self,
        call: &Call<'_>,
        body: &mut Incoming,
    ) -> Result<Response<Reply>, InferError> {
        match Route::of(&call.head.method, call.head.uri.path())? {
            Route::Infer(target) => self.traced(call, body, &target).await,
            Route::Live => Ok(models::live()),
            Route::Ready => Ok(models::ready(self)),
            Route::Server => Ok(models::server()),
            Route::Model(target, question) => models::about(self, &target, question),
            Route::AllStats => Ok(models::all_stats(self)),
            Route::Index => models::index(self, call, body).await,
            Route::Load(model) => {
                let act = models::put_in_service(self, call, body, (&model, true));
                self.audited(call, act).await
            }
            Route::Unload(model) => {
                let act = models::put_in_service(self, call, body, (&model, false));
                self.audited(call, act).await
            }
            Route::Unsupported(what) => Err(InferError::Unsupported { what }),
        }
    }

    /// Writes an administrative act down with whoever did it.
    async fn audited(
        &self,
        call: &Call<'_>,
        act: impl Future<Output = Result<Response<Reply>, InferError>>,
    ) -> Result<Response<Reply>, InferError> {
        let who = self.access.load().name_of(&call.head.headers, call.peer.address);
        let answered = act.await;
        let status = answered.as_ref().map_or_else(InferError::status, Response::status);
        audit(&who, call, status);
        answered
    }

    /// Answers an inference request, and traces it if it is to be.
    async fn traced(
        &self,
        call: &Call<'_>,
        body: &mut Incoming,
        target: &Target<'_>,
    ) -> Result<Response<Reply>, InferError> {
        // Not held while the answer is awaited: what is loaded can be held cheaply by a few only.
        let begun = {
            let tracer = self.tracer.load();
            tracer.as_ref().and_then(|tracer| tracer.begin(&call.head.headers, call.arrived))
        };
        let Some(mut span) = begun else {
            return infer::infer(self, call, (body, None), target).await;
        };
        span.asks(&clipped(&target.model));
        let answered = infer::infer(self, call, (body, Some(span.traced())), target).await;
        let reason = answered.as_ref().err().map(InferError::reason);
        let mut response = answered.unwrap_or_else(|error| reply::fail(&error));
        if let Some(value) = span.response() {
            response.headers_mut().insert(TRACE_RESPONSE, value);
        }
        span.answered(response.status(), reason);
        Ok(response)
    }
}

impl<B: Backend> Answer for ServerState<B> {
    type Body = Reply;

    fn limits(&self) -> Limits {
        Limits::from(&**self.settings.load())
    }

    fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.http_tls()
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<Reply> {
        let arrived = Instant::now();
        let (head, mut body) = request.into_parts();
        let call = Call { head: &head, peer: &peer, arrived };
        let answered = self.route(&call, &mut body).await;
        let response = answered.unwrap_or_else(|error| reply::fail(&error));
        self.finish(&call, Some(body), response)
    }
}

/// Serves inference on `tcp` until the drain has closed the listener and the last connection is done.
pub async fn serve<B: Backend>(tcp: TcpListener, state: Arc<ServerState<B>>) {
    let phase = state.drain.watch();
    listener::serve(tcp, state, phase).await;
}

/// Writes the audit log. An act that was refused did nothing, and anybody could fill the log with
/// them, so those are told at `debug`.
pub fn audit(who: &str, call: &Call<'_>, status: StatusCode) {
    let (peer, method) = (call.peer.address, &call.head.method);
    let (path, status) = (call.head.uri.path(), status.as_u16());
    match status {
        401 | 403 => {
            tracing::debug!(target: "audit", who, %peer, %method, path, status, "refused");
        }
        _ => tracing::info!(target: "audit", who, %peer, %method, path, status, "administered"),
    }
}

/// Writes the access log: at `debug`, but errors at `info` where every request is wanted.
fn log<R>(wanted: AccessLog, call: &Call<'_>, response: &Response<R>) {
    let failed = !response.status().is_success();
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: "access",
                peer = %call.peer.address,
                method = %call.head.method,
                path = call.head.uri.path(),
                status = response.status().as_u16(),
                took_us = call.arrived.elapsed().as_micros() as u64,
                id = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()),
                "answered"
            )
        };
    }
    match (wanted, failed) {
        (AccessLog::Off, _) | (AccessLog::Errors, false) => {}
        (AccessLog::All, true) => line!(info),
        (AccessLog::All, false) | (AccessLog::Errors, true) => line!(debug),
    }
}

/// As much of a name as an error repeats.
fn clipped(name: &str) -> String {
    name[..name.floor_char_boundary(80)].to_owned()
}

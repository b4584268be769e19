//! The life of one connection: its requests, its timeouts, its part in a drain.

use std::{
    cell::RefCell,
    convert::Infallible,
    error::Error,
    future::poll_fn,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use hyper::{
    body::{Body, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use oip::Memory;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{Instant, timeout},
};
use tower::Service;

use super::{
    Limits,
    activity::{Activity, Clock, Overdue},
    held::Answering,
    stream::Stream,
};
use crate::{
    body::RequestBody,
    drain::{Drain, Phase},
    note::Note,
};

/// Streams one HTTP/2 connection may have open.
const MAX_STREAMS: u32 = 256;
/// Streams a client may open and reset before we are done with it (CVE-2023-44487).
const MAX_RESET_STREAMS: usize = 32;
/// How far an HTTP/2 client may send ahead of us reading, per stream and in all.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// How long a client just accepted has to send its request once the listener is closed.
const LAST_REQUEST: Duration = Duration::from_secs(1);

/// Who is at the other end of a connection.
#[derive(Debug)]
pub struct Peer {
    pub address: SocketAddr,
    pub(crate) said: Mutex<Memory>,
}

/// A request whose head was just read.
#[derive(Debug)]
pub struct Arrival {
    pub request: Request<RequestBody>,
    pub peer: Arc<Peer>,
    pub at: Instant,
    /// What the access log says of it, if it has a line.
    pub note: Option<Arc<Note>>,
}

pub(super) struct Connection<S> {
    pub(super) peer: SocketAddr,
    pub(super) limits: Limits,
    pub(super) drain: Arc<Drain>,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) service: S,
}

impl<S, B> Connection<S>
where
    S: Service<Arrival, Response = Response<B>, Error = Infallible, Future: Send + 'static>,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    /// Serves until the client leaves, is overdue, or the drain ends it.
    pub(super) async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { peer, mut limits, drain, mut phase, service } = self;
        let activity = Activity::new();
        let mut clock = Clock::new(Arc::clone(&activity), &limits);
        let io = TokioIo::new(Stream::new(stream, Arc::clone(&activity)));
        let builder = protocol(&limits);
        let peer = Arc::new(Peer { address: peer, said: Mutex::default() });
        // One connection is one task, so its requests take turns at one clone of the service.
        let (service, busy) = (RefCell::new(service), Arc::clone(&activity));
        let answer = service_fn(move |request: Request<Incoming>| {
            let (busy, drain, version) = (busy.begin(), Arc::clone(&drain), request.version());
            let request = RequestBody::of(request, limits.max_body_bytes);
            let arrival =
                Arrival { request, peer: Arc::clone(&peer), at: Instant::now(), note: None };
            let mut service = service.borrow_mut();
            let ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
            debug_assert!(ready.is_ready(), "services behind a listener are always ready");
            Answering { inner: service.call(arrival), busy: Some(busy), drain, version }
        });
        let mut connection = pin!(builder.serve_connection(io, answer));
        phase.mark_changed();
        loop {
            tokio::select! {
                biased;
                _ = connection.as_mut() => return,
                changed = phase.changed() => {
                    let now = *phase.borrow_and_update();
                    if changed.is_err() || now == Phase::Cut {
                        return;
                    }
                    if now == Phase::HandedOver && activity.is_http2() {
                        connection.as_mut().graceful_shutdown();
                    }
                    if now == Phase::Closing {
                        limits.header_timeout = limits.header_timeout.min(LAST_REQUEST);
                        if !activity.expects_request() {
                            connection.as_mut().graceful_shutdown();
                        }
                    }
                }
                overdue = poll_fn(|cx| clock.poll(cx, &limits)) => match overdue {
                    Overdue::Stuck => return,
                    Overdue::Idle => {
                        connection.as_mut().graceful_shutdown();
                        let _: Result<_, _> =
                            timeout(limits.idle_timeout, connection.as_mut()).await;
                        return;
                    }
                }
            }
        }
    }
}

fn protocol(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(limits.max_header_bytes);
    builder
        .http2()
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_RESET_STREAMS)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

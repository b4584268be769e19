//! The console: one page and what it needs, within the program, and the events that keep it live.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;
use serve::{
    doors::oip::backend::Backend,
    drain::Phase,
    reply::{self, Reply},
};
use tokio::{
    sync::watch,
    time::{Interval, MissedTickBehavior, interval},
};

use super::Admin;

const PAGE: &str = include_str!("../../console/index.html");
const STYLE: &str = include_str!("../../console/console.css");
const SCRIPT: &str = include_str!("../../console/console.js");
const STEERING: &str = include_str!("../../console/steer.js");
const ORDERS: &str = include_str!("../../console/orders.js");
const PARTS: &str = include_str!("../../console/parts.js");
const CHARTS: &str = include_str!("../../console/charts.js");
const DETAILS: &str = include_str!("../../console/details.js");
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// The page runs its own script and asks its own router, nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const EVERY: Duration = Duration::from_secs(1);

pub(super) async fn page() -> http::Response<Reply> {
    file("text/html; charset=utf-8", PAGE)
}

pub(super) async fn style() -> http::Response<Reply> {
    file("text/css; charset=utf-8", STYLE)
}

pub(super) async fn script() -> http::Response<Reply> {
    file(JAVASCRIPT, SCRIPT)
}

pub(super) async fn steering() -> http::Response<Reply> {
    file(JAVASCRIPT, STEERING)
}

pub(super) async fn ordering() -> http::Response<Reply> {
    file(JAVASCRIPT, ORDERS)
}

pub(super) async fn parts() -> http::Response<Reply> {
    file(JAVASCRIPT, PARTS)
}

pub(super) async fn charts() -> http::Response<Reply> {
    file(JAVASCRIPT, CHARTS)
}

pub(super) async fn details() -> http::Response<Reply> {
    file(JAVASCRIPT, DETAILS)
}

fn file(kind: &'static str, text: &'static str) -> http::Response<Reply> {
    let body = Bytes::from_static(text.as_bytes());
    let mut response = reply::of(StatusCode::OK, HeaderValue::from_static(kind), body.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// `GET /admin/v1/events`: the last minutes once, then the state every second, until the client
/// leaves or the router closes.
pub(super) async fn events<B: Backend>(State(admin): State<Arc<Admin<B>>>) -> Response {
    let mut ticks = interval(EVERY);
    // A client that reads slowly misses states rather than getting all of them late.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let phase = admin.shared.drain.watch();
    let first = event("history", &(admin.hooks.history)());
    let watching = Watching { admin, ticks, phase, first: Some(first) };
    let body = Body::from_stream(stream::unfold(watching, Watching::next));
    let kind = HeaderValue::from_static("text/event-stream");
    let proxies = HeaderName::from_static("x-accel-buffering");
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (proxies, HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

struct Watching<B> {
    admin: Arc<Admin<B>>,
    ticks: Interval,
    phase: watch::Receiver<Phase>,
    first: Option<Bytes>,
}

impl<B: Backend> Watching<B> {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(first) = self.first.take() {
            return Some((Ok(first), self));
        }
        tokio::select! {
            _ = self.phase.wait_for(|phase| *phase >= Phase::Closing) => return None,
            _ = self.ticks.tick() => {}
        }
        let state = event("state", &(self.admin.hooks.state)());
        Some((Ok(state), self))
    }
}

fn event(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

//! Health, metrics, and what an operator reads and does, one function per endpoint.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, Request, State},
};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::json;
use serve::{
    doors::oip::backend::Backend,
    error::InferError,
    layers::Context,
    reply::{self, Reply},
};

use super::{Admin, TEXT, error::AdminError, views};
use crate::{metrics::CONTENT_TYPE, reload::Asked as Reload};

/// The longest configuration.
const LONGEST_FILE: usize = 4 << 20;

pub(super) type Asked<B> = State<Arc<Admin<B>>>;

pub(super) async fn live() -> Response<Reply> {
    reply::of(StatusCode::OK, TEXT, Bytes::from_static(b"ok\n").into())
}

pub(super) async fn ready<B: Backend>(
    State(admin): Asked<B>,
    RawQuery(query): RawQuery,
) -> Response<Reply> {
    let query = query.unwrap_or_default();
    let verbose = query.split('&').any(|part| part.split('=').next() == Some("verbose"));
    views::ready(&admin.shared, verbose)
}

pub(super) async fn metrics<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    // Tens of milliseconds for a large fleet: not between two requests.
    let written = tokio::task::spawn_blocking(move || (admin.hooks.metrics)()).await;
    let page = Bytes::from(written.unwrap_or_default());
    reply::of(StatusCode::OK, HeaderValue::from_static(CONTENT_TYPE), page.into())
}

pub(super) async fn state<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &(admin.hooks.state)())
}

pub(super) async fn config<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &admin.shared.backend.config())
}

pub(super) async fn workers<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &(admin.hooks.workers)())
}

pub(super) async fn models<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &views::models(&*admin.shared.backend))
}

pub(super) async fn tenants<B: Backend>(
    State(admin): Asked<B>,
    Extension(context): Extension<Context>,
) -> Response<Reply> {
    let tenants = admin.shared.access.load().tenants(context.arrived);
    reply::json(StatusCode::OK, &json!({ "tenants": tenants }))
}

/// `?dry_run` changes nothing and takes the text of another file as its body; `?force` puts objectives
/// in force that no measured slice can keep.
pub(super) async fn reload<B: Backend>(
    State(admin): Asked<B>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response<Reply>, AdminError> {
    let query = query.unwrap_or_default();
    let body = Limited::new(request.into_body(), LONGEST_FILE).collect().await;
    let unread = |_| InferError::BadBody {
        problem: format!("it is longer than {LONGEST_FILE} bytes, or was cut off"),
    };
    let body = body.map_err(unread)?.to_bytes();
    let text = (!body.is_empty()).then(|| String::from_utf8_lossy(&body).into_owned());
    let dry_run = flag(&query, "dry_run");
    if text.is_some() && !dry_run {
        let problem = "a reload reads the router's own file; give a file only with ?dry_run";
        return Err(InferError::BadBody { problem: problem.to_owned() }.into());
    }
    let asked = Reload { text, dry_run, force: flag(&query, "force") };
    let report = (admin.hooks.reload)(asked).await?;
    Ok(reply::json(StatusCode::OK, &report))
}

/// Whether a query has `name`, and not as `false`.
fn flag(query: &str, name: &str) -> bool {
    query.split('&').any(|part| match part.split_once('=') {
        None => part == name,
        Some((found, value)) => found == name && value != "false",
    })
}

/// `?after=N` leaves out what was seen before.
pub(super) async fn recent<B: Backend>(
    State(admin): Asked<B>,
    RawQuery(query): RawQuery,
) -> Result<Response<Reply>, AdminError> {
    let query = query.unwrap_or_default();
    let after = query.split('&').find_map(|part| part.strip_prefix("after="));
    let number = |text: &str| {
        text.parse().map_err(|_| InferError::BadValue {
            name: "after",
            found: text.chars().take(80).collect(),
            wanted: "the number of an event",
        })
    };
    let after = after.map_or(Ok(0), number)?;
    Ok(reply::json(StatusCode::OK, &(admin.hooks.events)(after)))
}

pub(super) async fn drain<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    let settings = admin.shared.settings.load();
    tracing::info!("drain asked for over HTTP");
    admin.shared.drain.ask();
    let body = json!({
        "draining": true,
        "delay_s": settings.drain_delay.as_secs_f64(),
        "timeout_s": settings.drain_timeout.as_secs_f64(),
    });
    reply::json(StatusCode::ACCEPTED, &body)
}

pub(super) async fn plan<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &admin.shared.backend.plan())
}

pub(super) async fn plan_input<B: Backend>(
    State(admin): Asked<B>,
) -> Result<Response<Reply>, AdminError> {
    let input = admin.shared.backend.plan_input();
    let input =
        input.ok_or(InferError::Unsupported { what: "a plan before the first decision" })?;
    Ok(reply::of(StatusCode::OK, reply::JSON, Bytes::from(input).into()))
}

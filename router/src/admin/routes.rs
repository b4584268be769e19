//! What is served where, one function per endpoint.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{OriginalUri, RawQuery, State},
    handler::Handler,
    routing::{MethodRouter, get, post},
};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;
use serve::{
    doors::oip::{backend::Backend, unknown},
    error::InferError,
    reply::{self, Reply},
};
use tower::Layer;

use super::{
    Admin, TEXT, console,
    error::AdminError,
    jobs::{self, only},
    objective, orders,
    scope::{Arrival, RequireAdminLayer},
    views,
};
use crate::metrics::CONTENT_TYPE;

const READ: &[&str] = &["GET", "HEAD"];
const WRITE: &[&str] = &["POST"];

pub(super) type Asked<B> = State<Arc<Admin<B>>>;

/// Every route of the admin listener.
pub(super) fn router<B: Backend>(admin: Arc<Admin<B>>) -> Router {
    let guarded = Router::new()
        .route("/v1/state", read(state::<B>))
        .route("/v1/events", read(console::events::<B>))
        .route("/v1/config", read(config::<B>))
        .route("/v1/workers", read(workers::<B>))
        .route("/v1/models", read(models::<B>))
        .route("/v1/tenants", read(tenants::<B>))
        .route("/v1/reload", write(reload::<B>))
        .route("/v1/objective", write(objective::change::<B>))
        .route("/v1/drain", write(drain::<B>))
        .route("/v1/plan", read(plan::<B>))
        .route("/v1/plan/input", read(plan_input::<B>))
        .merge(jobs::routes())
        .merge(orders::routes())
        .fallback(nowhere)
        .with_state(Arc::clone(&admin));
    let scope = RequireAdminLayer::new(Arc::clone(&admin.shared));
    Router::new()
        .route("/", read(console::page))
        .route("/console.css", read(console::style))
        .route("/console.js", read(console::script))
        .route("/steer.js", read(console::steering))
        .route("/orders.js", read(console::ordering))
        .route("/parts.js", read(console::parts))
        .route("/livez", read(live))
        .route("/v2/health/live", read(live))
        .route("/readyz", read(ready::<B>))
        .route("/v2/health/ready", read(ready::<B>))
        .route("/metrics", read(metrics::<B>))
        // Layering each route would let axum name its methods to callers that were refused.
        .nest_service("/admin", scope.layer(guarded))
        .fallback(nowhere)
        .with_state(admin)
}

fn read<H, T, S>(handler: H) -> MethodRouter<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    only(get(handler), READ)
}

fn write<H, T, S>(handler: H) -> MethodRouter<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    only(post(handler), WRITE)
}

async fn live() -> Response<Reply> {
    reply::of(StatusCode::OK, TEXT, Bytes::from_static(b"ok\n").into())
}

async fn ready<B: Backend>(State(admin): Asked<B>, RawQuery(query): RawQuery) -> Response<Reply> {
    let query = query.unwrap_or_default();
    let verbose = query.split('&').any(|part| part.split('=').next() == Some("verbose"));
    views::ready(&admin.shared, verbose)
}

async fn metrics<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    let page = Bytes::from((admin.hooks.metrics)());
    reply::of(StatusCode::OK, HeaderValue::from_static(CONTENT_TYPE), page.into())
}

async fn state<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &(admin.hooks.state)())
}

async fn config<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &admin.shared.backend.config())
}

async fn workers<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &admin.shared.backend.workers())
}

async fn models<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &views::models(&*admin.shared.backend))
}

async fn tenants<B: Backend>(
    State(admin): Asked<B>,
    Extension(arrival): Extension<Arrival>,
) -> Response<Reply> {
    let tenants = admin.shared.access.load().tenants(arrival.at);
    reply::json(StatusCode::OK, &json!({ "tenants": tenants }))
}

async fn reload<B: Backend>(State(admin): Asked<B>) -> Result<Response<Reply>, AdminError> {
    let report = (admin.hooks.reload)().await?;
    Ok(reply::json(StatusCode::OK, &report))
}

async fn drain<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
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

async fn plan<B: Backend>(State(admin): Asked<B>) -> Response<Reply> {
    reply::json(StatusCode::OK, &admin.shared.backend.plan())
}

async fn plan_input<B: Backend>(State(admin): Asked<B>) -> Result<Response<Reply>, AdminError> {
    let input = admin.shared.backend.plan_input();
    let input =
        input.ok_or(InferError::Unsupported { what: "a plan before the first decision" })?;
    Ok(reply::of(StatusCode::OK, reply::JSON, Bytes::from(input).into()))
}

async fn nowhere(OriginalUri(uri): OriginalUri) -> AdminError {
    unknown(uri.path()).into()
}

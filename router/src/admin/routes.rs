//! Health, metrics, and what an operator reads and does, one function per endpoint.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, State},
};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;
use serve::{
    doors::oip::backend::Backend,
    error::InferError,
    layers::Context,
    reply::{self, Reply},
};

use super::{Admin, TEXT, error::AdminError, views};
use crate::metrics::CONTENT_TYPE;

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
    let page = Bytes::from((admin.hooks.metrics)());
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

pub(super) async fn reload<B: Backend>(
    State(admin): Asked<B>,
) -> Result<Response<Reply>, AdminError> {
    let report = (admin.hooks.reload)().await?;
    Ok(reply::json(StatusCode::OK, &report))
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

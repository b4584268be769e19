//! Drains and pins over HTTP.

use axum::{
    extract::{Path, RawQuery, Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use serve::{doors::oip::backend::Backend, reply};

use super::{Admin, error::AdminError, routes::Asked};
use crate::orders::{Order, OrderError};

const LONGEST: usize = 64 << 10;

async fn read(request: Request) -> Result<Vec<u8>, OrderError> {
    let body = Limited::new(request.into_body(), LONGEST).collect().await;
    let body = body.map_err(|_| OrderError::Invalid {
        what: format!("the request is longer than {LONGEST} bytes, or was cut off"),
    })?;
    Ok(body.to_bytes().to_vec())
}

async fn give<B: Backend>(admin: &Admin<B>, order: Order) -> Result<Response, AdminError> {
    let report = (admin.hooks.order)(order).await?;
    Ok(reply::json(StatusCode::OK, &report).into_response())
}

pub(super) async fn drain<B: Backend>(
    State(admin): Asked<B>,
    Path(worker): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, AdminError> {
    let body = read(request).await?;
    let order = Order::drain(worker, &body, admin.shared.access.load().key_name(&headers))?;
    give(&admin, order).await
}

pub(super) async fn give_back<B: Backend>(
    State(admin): Asked<B>,
    Path(worker): Path<String>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let query = query.unwrap_or_default();
    let order = Order::give_back(worker, &query, admin.shared.access.load().key_name(&headers))?;
    give(&admin, order).await
}

pub(super) async fn pin<B: Backend>(
    State(admin): Asked<B>,
    Path(model): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, AdminError> {
    let body = read(request).await?;
    let order = Order::pin(model, &body, admin.shared.access.load().key_name(&headers))?;
    give(&admin, order).await
}

pub(super) async fn unpin<B: Backend>(
    State(admin): Asked<B>,
    Path(model): Path<String>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let query = query.unwrap_or_default();
    let order = Order::unpin(model, &query, admin.shared.access.load().key_name(&headers))?;
    give(&admin, order).await
}

//! Training jobs over HTTP.

use axum::{
    extract::{Path, RawQuery, Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::json;
use serve::{doors::oip::backend::Backend, reply};

use super::{Admin, error::AdminError, routes::Asked};
use crate::{jobs::JobError, office::Office};

const LONGEST: usize = 256 << 10;

fn office<B>(admin: &Admin<B>) -> Result<&Office, JobError> {
    admin.hooks.jobs.as_deref().ok_or(JobError::NoLoans)
}

fn number(id: &str) -> Result<u64, JobError> {
    id.parse().map_err(|_| JobError::Unknown { given: format!("{id:?}") })
}

pub(super) async fn list<B: Backend>(State(admin): Asked<B>) -> Result<Response, AdminError> {
    let jobs = office(&admin)?.list();
    Ok(reply::json(StatusCode::OK, &json!({ "jobs": jobs })).into_response())
}

pub(super) async fn submit<B: Backend>(
    State(admin): Asked<B>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, AdminError> {
    let body = Limited::new(request.into_body(), LONGEST).collect().await;
    let body = body.map_err(|_| JobError::Invalid {
        what: format!("the submission is longer than {LONGEST} bytes, or was cut off"),
    })?;
    let key = headers.get("idempotency-key").map(|value| value.to_str().map(str::to_owned));
    let key = key.transpose().map_err(|_| JobError::Invalid {
        what: "the idempotency key holds more than visible ASCII".to_owned(),
    })?;
    let (job, is_new) = office(&admin)?.submit(&body.to_bytes(), key).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(reply::json(status, &job).into_response())
}

pub(super) async fn show<B: Backend>(
    State(admin): Asked<B>,
    Path(id): Path<String>,
) -> Result<Response, AdminError> {
    let job = office(&admin)?.show(number(&id)?)?;
    Ok(reply::json(StatusCode::OK, &job).into_response())
}

pub(super) async fn cancel<B: Backend>(
    State(admin): Asked<B>,
    Path(id): Path<String>,
) -> Result<Response, AdminError> {
    let job = office(&admin)?.cancel(number(&id)?).await?;
    let status = if job.brief.state.is_over() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(reply::json(status, &job).into_response())
}

pub(super) async fn log<B: Backend>(
    State(admin): Asked<B>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let (mut rank, mut from) = (0, None);
    for part in query.as_deref().unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let bad = |_| JobError::Invalid { what: format!("{name} is {value:?}; give a number") };
        match name {
            "rank" => rank = value.parse().map_err(bad)?,
            "from" => from = Some(value.parse().map_err(bad)?),
            _ => {
                let what = format!("there is no parameter {name:?}; give rank or from");
                return Err(JobError::Invalid { what }.into());
            }
        }
    }
    let page = office(&admin)?.log(number(&id)?, rank, from).await?;
    Ok(reply::json(StatusCode::OK, &page).into_response())
}

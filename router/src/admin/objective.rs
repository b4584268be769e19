//! Another objective for a model, over HTTP.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use config::{Objective, ObjectiveError};
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use serve::{doors::oip::backend::Backend, reply};

use super::{error::AdminError, routes::Asked};
use crate::reload::ReloadError;

const LONGEST: usize = 64 << 10;

pub(super) async fn change<B: Backend>(
    State(admin): Asked<B>,
    request: Request,
) -> Result<Response, AdminError> {
    let body = Limited::new(request.into_body(), LONGEST).collect().await;
    let unread = |_| ObjectiveError::Invalid {
        problems: vec![format!("the request is longer than {LONGEST} bytes, or was cut off")],
    };
    let body = body.map_err(unread).map_err(ReloadError::from)?;
    let asked = Objective::read(&body.to_bytes()).map_err(ReloadError::from)?;
    let report = (admin.hooks.objective)(asked).await?;
    Ok(reply::json(StatusCode::OK, &report).into_response())
}

//! Another objective for a model, over HTTP.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use config::{Objective, ObjectiveError};
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use serde_json::json;

use super::routes::Asked;
use crate::{
    http::{backend::Backend, reply},
    leader::Leader,
};

/// The longest request.
const LONGEST: usize = 64 << 10;

/// Why an objective does not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SteerError {
    /// The configuration cannot hold it.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// It cannot take effect now.
    #[error("{why}; the old objective stays")]
    Conflict {
        /// What stands in the way.
        why: String,
    },
    /// It could not be stored where the other routers read it.
    #[error("the objective cannot be stored: {why}; the old objective stays")]
    Unkept {
        /// The store's own error.
        why: String,
    },
    /// Only the leader changes objectives for all routers.
    #[error("this router does not lead; the old objective stays")]
    Follows {
        /// The leader, if known.
        leader: Option<Leader>,
    },
}

/// `POST /admin/v1/objective`.
pub(super) async fn change<B: Backend>(
    State(admin): Asked<B>,
    request: Request,
) -> Result<Response, SteerError> {
    let body = Limited::new(request.into_body(), LONGEST).collect().await;
    let body = body.map_err(|_| ObjectiveError::Invalid {
        problems: vec![format!("the request is longer than {LONGEST} bytes, or was cut off")],
    })?;
    let asked = Objective::read(&body.to_bytes())?;
    let report = (admin.hooks.objective)(asked).await?;
    Ok(reply::json(StatusCode::OK, &report).into_response())
}

impl IntoResponse for SteerError {
    fn into_response(self) -> Response {
        let message = self.to_string();
        let (status, body) = match self {
            Self::Objective(ObjectiveError::UnknownModel { model }) => (
                StatusCode::NOT_FOUND,
                json!({"error": message, "reason": "unknown_model", "model": model}),
            ),
            Self::Objective(ObjectiveError::Invalid { problems }) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                json!({"error": message, "reason": "invalid", "problems": problems}),
            ),
            Self::Conflict { .. } => {
                (StatusCode::CONFLICT, json!({"error": message, "reason": "conflict"}))
            }
            Self::Unkept { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, json!({"error": message, "reason": "storage"}))
            }
            Self::Follows { leader } => {
                let mut body = json!({"error": message, "reason": "not_leader"});
                if let Some(leader) = leader {
                    body["leader"] = json!(leader.admin);
                }
                (StatusCode::SERVICE_UNAVAILABLE, body)
            }
        };
        reply::json(status, &body).into_response()
    }
}

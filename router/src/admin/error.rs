//! Why an operator's request was not carried out, as HTTP says it.

use axum::response::{IntoResponse, Response};
use config::ObjectiveError;
use http::StatusCode;
use policy::loan::Refused;
use serde_json::{Map, Value};
use serve::{error::InferError, note::Reason, reply};

use crate::{jobs::JobError, orders::OrderError, reload::ReloadError};

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum AdminError {
    /// What any listener may say: no such path, wrong method, access denied.
    Request(#[from] InferError),
    Reload(#[from] ReloadError),
    Job(#[from] JobError),
    Order(#[from] OrderError),
}

impl AdminError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Request(error) => error.status(),
            Self::Reload(error) => match error {
                ReloadError::Objective(ObjectiveError::UnknownModel { .. }) => {
                    StatusCode::NOT_FOUND
                }
                ReloadError::Invalid { .. }
                | ReloadError::Unkeepable { .. }
                | ReloadError::Objective(ObjectiveError::Invalid { .. }) => {
                    StatusCode::UNPROCESSABLE_ENTITY
                }
                ReloadError::Conflict { .. } => StatusCode::CONFLICT,
                ReloadError::Unkept(_) | ReloadError::Follows { .. } => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
            },
            Self::Job(error) => job_status(error),
            Self::Order(error) => match error {
                OrderError::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
                OrderError::UnknownWorker { .. }
                | OrderError::UnknownModel { .. }
                | OrderError::NotOrdered { .. } => StatusCode::NOT_FOUND,
                OrderError::Conflict { .. } => StatusCode::CONFLICT,
                OrderError::Unkept(_) | OrderError::Follows { .. } => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
            },
        }
    }
}

fn job_status(error: &JobError) -> StatusCode {
    match error {
        JobError::Invalid { .. } | JobError::UnknownTenant { .. } => StatusCode::BAD_REQUEST,
        JobError::NoLoans | JobError::NotAllowed { .. } => StatusCode::FORBIDDEN,
        JobError::Unknown { .. } => StatusCode::NOT_FOUND,
        JobError::KeyReused { .. } | JobError::Over { .. } => StatusCode::CONFLICT,
        JobError::Refused(Refused::Quota { .. }) | JobError::TooMany { .. } => {
            StatusCode::TOO_MANY_REQUESTS
        }
        JobError::Refused(
            Refused::BadCount { .. }
            | Refused::TooMany { .. }
            | Refused::Memory { .. }
            | Refused::UnknownLength
            | Refused::TooShort { .. }
            | Refused::Promised { .. },
        ) => StatusCode::UNPROCESSABLE_ENTITY,
        JobError::Unkept(_) | JobError::Away { .. } => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let status = self.status();
        let (reason, details) = match &self {
            Self::Request(error) => return reply::fail(error).into_response(),
            Self::Reload(error) => (error.reason(), error.details()),
            Self::Job(error) => (error.reason(), error.numbers()),
            Self::Order(error) => (error.reason(), error.numbers()),
        };
        let mut body = Map::new();
        body.insert("error".to_owned(), chain(&self).into());
        body.insert("reason".to_owned(), reason.into());
        if let Value::Object(details) = details {
            body.extend(details);
        }
        let mut response = reply::json(status, &body).into_response();
        response.extensions_mut().insert(Reason(reason));
        response
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

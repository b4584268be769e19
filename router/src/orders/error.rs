//! Why an order is not taken, and what the operator is told.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;

use crate::{http::reply, leader::Leader, records::KeepError};

/// A refused order.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// It cannot be read.
    #[error("{what}")]
    Invalid {
        /// What is wrong with it.
        what: String,
    },
    /// No such worker.
    #[error("no worker named {worker:?}")]
    UnknownWorker {
        /// As it was given.
        worker: String,
    },
    /// No such model.
    #[error("no model named {model:?}")]
    UnknownModel {
        /// As it was given.
        model: String,
    },
    /// Nothing of the kind stands.
    #[error("{what}")]
    NotOrdered {
        /// What does not.
        what: String,
    },
    /// It cannot be carried out.
    #[error("{why}; nothing was changed")]
    Conflict {
        /// What stands in the way.
        why: String,
    },
    /// It could not be written down.
    #[error("the order cannot be kept; nothing was changed")]
    Unkept(#[source] KeepError),
    /// Only the router that leads takes orders.
    #[error("this router does not lead; nothing was changed")]
    Follows {
        /// Who does, if that is known.
        leader: Option<Leader>,
    },
}

impl From<KeepError> for OrderError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Follows { leader } => Self::Follows { leader },
            KeepError::File(_) | KeepError::Etcd(_) => Self::Unkept(error),
        }
    }
}

impl OrderError {
    /// The HTTP status the operator sees.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::UnknownWorker { .. } | Self::UnknownModel { .. } | Self::NotOrdered { .. } => {
                StatusCode::NOT_FOUND
            }
            Self::Conflict { .. } => StatusCode::CONFLICT,
            Self::Unkept(_) | Self::Follows { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The `reason` in the body, from a fixed set.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid",
            Self::UnknownWorker { .. } => "unknown_worker",
            Self::UnknownModel { .. } => "unknown_model",
            Self::NotOrdered { .. } => "not_ordered",
            Self::Conflict { .. } => "conflict",
            Self::Unkept(_) => "storage",
            Self::Follows { .. } => "not_leader",
        }
    }
}

impl IntoResponse for OrderError {
    fn into_response(self) -> Response {
        let mut body = json!({"error": self.to_string(), "reason": self.reason()});
        if let Self::Follows { leader: Some(leader) } = &self {
            body["leader"] = json!(leader.admin);
        }
        reply::json(self.status(), &body).into_response()
    }
}

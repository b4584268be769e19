//! Why an order is not taken, and what the operator is told.

use serde_json::{Value, json};

use crate::{leader::Leader, records::KeepError};

#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error("{what}")]
    Invalid { what: String },
    /// With what may have been meant.
    #[error("no worker named {worker:?}{hint}")]
    UnknownWorker { worker: String, hint: String },
    #[error("no model named {model:?}{hint}")]
    UnknownModel { model: String, hint: String },
    #[error("{what}")]
    NotOrdered { what: String },
    #[error("{why}; nothing was changed")]
    Conflict { why: String },
    #[error("the order cannot be kept; nothing was changed")]
    Unkept(#[source] KeepError),
    /// Only the router that leads takes orders.
    #[error("this router does not lead; nothing was changed")]
    Follows { leader: Option<Leader> },
}

impl From<KeepError> for OrderError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Follows { leader } => Self::Follows { leader },
            KeepError::File(_) | KeepError::Etcd(_) | KeepError::HandingOver => Self::Unkept(error),
        }
    }
}

impl OrderError {
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

    pub fn numbers(&self) -> Value {
        match self {
            Self::Follows { leader: Some(leader) } => json!({ "leader": leader.admin }),
            Self::Invalid { .. }
            | Self::UnknownWorker { .. }
            | Self::UnknownModel { .. }
            | Self::NotOrdered { .. }
            | Self::Conflict { .. }
            | Self::Unkept(_)
            | Self::Follows { leader: None } => json!({}),
        }
    }
}

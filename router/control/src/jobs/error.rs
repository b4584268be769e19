//! Why something asked of a job was not done.

use super::State;
use crate::records::KeepError;
use policy::loan::Refused;
use serde_json::{Value, json};

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("this router runs no jobs: its configuration has no [loans] that allows a program")]
    NoLoans,
    #[error("{what}")]
    Invalid { what: String },
    #[error("{program:?} is not allowed; allowed are {}, by allow in [loans]", .allow.join(", "))]
    NotAllowed { program: String, allow: Vec<String> },
    #[error("{}", unknown_tenant(.given.as_deref(), .known))]
    UnknownTenant { given: Option<String>, known: Vec<String> },
    #[error(
        "{whose} {unfinished} jobs that have not ended; at most {most} may be, by tenant_jobs in [loans]"
    )]
    TooMany {
        /// Whose jobs, as the subject of a sentence.
        whose: String,
        unfinished: usize,
        most: usize,
    },
    /// It could never run, or never be in time.
    #[error("the job {0}")]
    Refused(Refused),
    /// The same idempotency key came with another job before.
    #[error("the idempotency key was used for job {id}, which is another")]
    KeyReused { id: u64 },
    #[error("there is no job {given}")]
    Unknown { given: String },
    #[error("job {id} is {}", .state.name())]
    Over { id: u64, state: State },
    /// It could not be made durable, so that it was not done.
    #[error("the job could not be kept")]
    Unkept(#[from] KeepError),
    /// What was asked for is at a worker that does not answer.
    #[error("{what}")]
    Away { what: String },
}

fn unknown_tenant(given: Option<&str>, known: &[String]) -> String {
    match (given, known) {
        (Some(name), []) => format!("no tenant named {name:?}: there are none; leave it out"),
        (Some(name), _) => format!("no tenant named {name:?}; give one of {}", known.join(", ")),
        (None, _) => format!("no tenant is given; give one of {}", known.join(", ")),
    }
}

impl JobError {
    /// The `reason` in the body, from a fixed set.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoLoans => "no_loans",
            Self::Invalid { .. } => "invalid",
            Self::NotAllowed { .. } => "not_allowed",
            Self::UnknownTenant { .. } => "unknown_tenant",
            Self::TooMany { .. } | Self::Refused(Refused::Quota { .. }) => "quota",
            Self::Refused(Refused::BadCount { .. } | Refused::TooMany { .. }) => "too_many_slices",
            Self::Refused(Refused::Memory { .. }) => "memory",
            Self::Refused(
                Refused::UnknownLength | Refused::TooShort { .. } | Refused::Promised { .. },
            ) => "deadline",
            Self::KeyReused { .. } => "key_reused",
            Self::Unknown { .. } => "unknown_job",
            Self::Over { .. } => "over",
            Self::Unkept(KeepError::Follows { .. }) => "not_leader",
            Self::Unkept(KeepError::File(_) | KeepError::Etcd(_)) => "storage",
            Self::Unkept(KeepError::HandingOver) | Self::Away { .. } => "unavailable",
        }
    }

    pub fn numbers(&self) -> Value {
        match self {
            Self::TooMany { unfinished, most, .. } => {
                json!({"unfinished": unfinished, "most": most})
            }
            Self::Refused(refused) => match refused {
                Refused::BadCount { least, most } => json!({"least": least, "most": most}),
                Refused::TooMany { asked, exist } => json!({"asked": asked, "exist": exist}),
                Refused::Memory { asked_mib, largest_mib } => {
                    json!({"asked_mib": asked_mib, "largest_mib": largest_mib})
                }
                Refused::Quota { asked, quota } => json!({"asked": asked, "quota": quota}),
                Refused::UnknownLength => json!({}),
                Refused::TooShort { takes, left } => {
                    json!({"takes_s": takes.as_secs(), "left_s": left.as_secs()})
                }
                Refused::Promised { promised_s, dependable_s } => {
                    json!({"promised_slice_s": promised_s, "dependable_slice_s": dependable_s})
                }
            },
            Self::KeyReused { id } => json!({"id": id}),
            Self::Over { id, state } => json!({"id": id, "state": state}),
            Self::Unkept(KeepError::Follows { leader: Some(leader) }) => {
                json!({"leader": leader.admin})
            }
            Self::NoLoans
            | Self::Invalid { .. }
            | Self::NotAllowed { .. }
            | Self::UnknownTenant { .. }
            | Self::Unknown { .. }
            | Self::Unkept(_)
            | Self::Away { .. } => json!({}),
        }
    }
}

//! What a worker and a router say to each other, one JSON object a line.
//!
//! The worker says what is ([`Report`]), the router what shall be ([`Desired`]), each whole and
//! each as often as it likes. Neither waits for the other, and either may die at any moment.

use serde::{Deserialize, Serialize};

use crate::{
    frame::same_secret,
    model::ModelSpec,
    rank::{DesiredRank, LogPiece},
    report::Report,
};

/// The version of these messages; a worker and a router of different versions refuse each other.
pub const JOIN_VERSION: u16 = 3;

/// The longest line of a worker that has not joined yet, in bytes.
pub const MAX_JOIN: usize = 4 << 10;

/// The longest line of any other message, in bytes: eight GPUs of seven slices with room to spare.
pub const MAX_MESSAGE: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
    /// The first message.
    Join {
        version: u16,
        /// What only workers of this fleet know.
        token: String,
        /// The worker's name, unique in the fleet.
        worker: String,
    },
    /// What is; sent on change, and each second all the same.
    Report(Box<Report>),
    /// The answer to [`ToWorker::ReadLog`].
    Log {
        question: u64,
        /// What there is; absent if this worker never had the rank.
        piece: Option<LogPiece>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    Welcome {
        version: u16,
    },
    Refused {
        reason: String,
    },
    Desired(Box<Desired>),
    ReadLog {
        question: u64,
        job: u64,
        rank: u32,
        /// Where to begin; absent, near the end.
        from: Option<u64>,
        most: u32,
    },
    /// The router is there and has nothing new; sent each second.
    Still,
    /// As [`ToWorker::Still`], from the router that leads. From then on the worker hears of no
    /// earlier leader, and its next report says so.
    Lead {
        /// Rises with every change of leader; 0 where there is one router.
        term: u64,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Desired {
    /// The term of the leader that wishes it; a worker refuses one below the highest it has heard of.
    pub term: u64,
    /// Rises with every change in a term; a worker ignores one below the highest it has seen.
    pub generation: u64,
    /// The GPUs that are spoken for; others are left as they are, without executors.
    pub gpus: Vec<DesiredGpu>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesiredGpu {
    pub gpu: u32,
    /// How it shall be cut; absent, it stays as it is.
    pub positions: Option<Vec<String>>,
    pub slices: Vec<DesiredSlice>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesiredSlice {
    /// Its position, or [`WHOLE`](crate::WHOLE).
    pub position: String,
    pub replicas: Vec<DesiredReplica>,
    /// The rank it is lent to; never beside replicas.
    pub rank: Option<Box<DesiredRank>>,
}

/// A model to serve. One of several processes has an entry for each, with an id and a lane of its
/// own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesiredReplica {
    /// Its id, unique on the worker, and another for every specification.
    pub replica: u32,
    /// Which process of the slice; models that share one take turns.
    pub lane: u32,
    pub digest: u64,
    /// What to load; absent for one that a router found running and knows only by its digest,
    /// which is kept for as long as it lasts.
    pub spec: Option<ModelSpec>,
    /// Whether routers may give it batches, which the worker passes on to all of them.
    pub serves: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    #[error("the worker speaks version {theirs}, this router speaks {JOIN_VERSION}")]
    Version { theirs: u16 },
    #[error("the token is not this fleet's")]
    Token,
    #[error("{name:?} is no name for a worker: give 1 to 128 letters, digits, '.', '_' or '-'")]
    Name { name: String },
    #[error("the first message must be a join")]
    OutOfTurn,
}

/// Judges the first message of a worker, as the router that expects `token`; returns its name.
///
/// Without a token everybody is trusted, which is for workers in the router's own process.
pub fn admit(message: &FromWorker, token: Option<&str>) -> Result<String, JoinError> {
    let FromWorker::Join { version, token: given, worker } = message else {
        return Err(JoinError::OutOfTurn);
    };
    if *version != JOIN_VERSION {
        return Err(JoinError::Version { theirs: *version });
    }
    if token.is_some_and(|token| !same_secret(given, token)) {
        return Err(JoinError::Token);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if worker.is_empty() || worker.len() > 128 || !worker.chars().all(plain) {
        return Err(JoinError::Name { name: worker.chars().take(40).collect() });
    }
    Ok(worker.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(version: u16, token: &str, worker: &str) -> FromWorker {
        FromWorker::Join { version, token: token.into(), worker: worker.into() }
    }

    #[test]
    fn a_worker_joins_with_the_fleets_token_and_no_other() {
        let admit = |token: &str| admit(&join(JOIN_VERSION, token, "gpu-7"), Some("sesame"));
        assert_eq!(admit("sesame").as_deref(), Ok("gpu-7"));
        for wrong in ["", "sesam", "sesame!", "Sesame"] {
            assert_eq!(admit(wrong), Err(JoinError::Token), "{wrong:?}");
        }
    }

    #[test]
    fn another_version_is_told_both_whatever_the_token() {
        let refused = admit(&join(9, "wrong", "gpu-7"), Some("sesame")).unwrap_err();
        assert_eq!(refused.to_string(), "the worker speaks version 9, this router speaks 3");
    }

    #[test]
    fn a_name_that_would_not_do_in_a_label_is_refused() {
        for name in ["", "a b", "a/b", &"x".repeat(129)] {
            let refused = admit(&join(JOIN_VERSION, "", name), None).unwrap_err();
            assert!(matches!(refused, JoinError::Name { .. }), "{name:?}: {refused}");
        }
    }

    #[test]
    fn a_report_before_the_join_is_out_of_turn() {
        let report = FromWorker::Report(Box::default());
        assert_eq!(admit(&report, None), Err(JoinError::OutOfTurn));
    }

    #[test]
    fn messages_are_readable_lines() {
        let line = serde_json::to_string(&ToWorker::Desired(Box::default())).unwrap();
        assert_eq!(line, r#"{"desired":{"term":0,"generation":0,"gpus":[]}}"#);
        assert_eq!(serde_json::to_string(&ToWorker::Still).unwrap(), r#""still""#);
    }
}

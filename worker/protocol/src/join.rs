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
    version::{OLDEST, SPOKEN, common},
};

/// The longest line of a worker that has not joined yet, in bytes.
pub const MAX_JOIN: usize = 4 << 10;

/// The longest line of any other message, in bytes: eight GPUs of seven slices with room to spare.
pub const MAX_MESSAGE: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
    /// The first message, which every version can read.
    Join {
        /// The oldest version the worker speaks; one of version 3 speaks no other.
        version: u16,
        /// All versions it speaks; absent, that one alone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        versions: Vec<u16>,
        /// What only workers of this fleet know.
        #[serde(default)]
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
        /// The version spoken from here on.
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
pub struct Desired {
    /// The term of the leader that wishes it; a worker refuses one below the highest it has heard of.
    pub term: u64,
    /// Rises with every change in a term; a worker ignores one below the highest it has seen.
    pub generation: u64,
    /// The GPUs that are spoken for; others are left as they are, without executors.
    pub gpus: Vec<DesiredGpu>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesiredGpu {
    pub gpu: u32,
    /// How it shall be cut; absent, it stays as it is.
    pub positions: Option<Vec<String>>,
    pub slices: Vec<DesiredSlice>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    #[error(
        "the worker speaks version {}, this router speaks {}: upgrade the older of the two, one \
        release at a time", list(theirs), list(&SPOKEN)
    )]
    Version { theirs: Vec<u16> },
    #[error("the token is not this fleet's")]
    Token,
    #[error("{name:?} is no name for a worker: give 1 to 128 letters, digits, '.', '_' or '-'")]
    Name { name: String },
    #[error("the first message must be a join")]
    OutOfTurn,
}

/// A worker that may come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub worker: String,
    /// The version to speak with it.
    pub version: u16,
}

impl FromWorker {
    /// The first message: it offers every version this program speaks.
    pub fn join(token: &str, worker: &str) -> Self {
        let (token, worker) = (token.to_owned(), worker.to_owned());
        Self::Join { version: OLDEST, versions: SPOKEN.to_vec(), token, worker }
    }
}

/// Judges the first message of a worker, as the router that expects `token`.
///
/// Without a token everybody is trusted, which is for workers in the router's own process.
pub fn admit(message: &FromWorker, token: Option<&str>) -> Result<Joined, JoinError> {
    let FromWorker::Join { version, versions, token: given, worker } = message else {
        return Err(JoinError::OutOfTurn);
    };
    let theirs = if versions.is_empty() { std::slice::from_ref(version) } else { versions };
    let Some(version) = common(theirs) else {
        return Err(JoinError::Version { theirs: theirs.to_vec() });
    };
    if token.is_some_and(|token| !same_secret(given, token)) {
        return Err(JoinError::Token);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if worker.is_empty() || worker.len() > 128 || !worker.chars().all(plain) {
        return Err(JoinError::Name { name: worker.chars().take(40).collect() });
    }
    Ok(Joined { worker: worker.clone(), version })
}

fn list(versions: &[u16]) -> String {
    let all: Vec<String> = versions.iter().take(8).map(u16::to_string).collect();
    all.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::JOIN_VERSION;

    fn join(version: u16, token: &str, worker: &str) -> FromWorker {
        let versions = Vec::new();
        FromWorker::Join { version, versions, token: token.into(), worker: worker.into() }
    }

    #[test]
    fn the_highest_version_both_speak_is_spoken() {
        let version = |message: &FromWorker| admit(message, None).map(|joined| joined.version);
        assert_eq!(version(&FromWorker::join("", "w")), Ok(JOIN_VERSION));
        assert_eq!(version(&join(3, "", "w")), Ok(3), "the version before offers no other");
        let later = r#"{"join":{"version":4,"versions":[4,5],"worker":"w","proof":"new"}}"#;
        assert_eq!(version(&serde_json::from_str(later).unwrap()), Ok(4));
    }

    #[test]
    fn a_worker_joins_with_the_fleets_token_and_no_other() {
        let admit = |token: &str| admit(&join(JOIN_VERSION, token, "gpu-7"), Some("sesame"));
        assert_eq!(admit("sesame").map(|joined| joined.worker).as_deref(), Ok("gpu-7"));
        for wrong in ["", "sesam", "sesame!", "Sesame"] {
            assert_eq!(admit(wrong), Err(JoinError::Token), "{wrong:?}");
        }
    }

    #[test]
    fn another_version_is_told_both_whatever_the_token() {
        let refused = admit(&join(9, "wrong", "gpu-7"), Some("sesame")).unwrap_err();
        let (worker, router) = ("the worker speaks version 9", "this router speaks 3 or 4");
        let said =
            format!("{worker}, {router}: upgrade the older of the two, one release at a time");
        assert_eq!(refused.to_string(), said);
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

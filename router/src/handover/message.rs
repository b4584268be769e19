//! What the running router and the one that replaces it say to each other.
//!
//! Fields that a side does not know are ignored, and every field added later needs a default, so that
//! a program and the one of the next version understand each other.

use std::{collections::BTreeMap, path::PathBuf};

use control::learned;
use protocol::Report;
use serde::{Deserialize, Serialize};
use store::Records;

/// The versions of this protocol that this program speaks.
pub const VERSIONS: &[u32] = &[1];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromNew {
    Hello(Hello),
    /// It is connected to every replica that has requests now.
    Attached,
    /// It has the executors and the state, and waits for the word to accept.
    Ready,
    /// It accepts connections.
    Accepting,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromOld {
    Refused {
        why: String,
    },
    /// Comes with a file descriptor for each of the listeners.
    Offer(Box<Offer>),
    /// The control plane stands still, the state is closed and the executors are free.
    Frozen(Box<Frozen>),
    /// What it has counted, as its page of metrics shows it.
    Counts {
        page: String,
    },
    /// It accepts no more; the other shall.
    Go,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub versions: Vec<u32>,
    /// The program's version, for people.
    pub program: String,
    /// What runs, since one cannot replace the other: `up` or `router`.
    pub command: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    pub version: u32,
    pub program: String,
    /// The names of the listeners, in the order of their descriptors.
    pub listeners: Vec<String>,
    /// Where sockets and simulated GPUs are, if that ends with the process.
    #[serde(default)]
    pub run_dir: Option<PathBuf>,
    /// By worker, its last report.
    #[serde(default)]
    pub workers: BTreeMap<String, Report>,
    /// Replicas that are given requests: by worker, their ids.
    #[serde(default)]
    pub serving: BTreeMap<String, Vec<u32>>,
    /// The batch limits of replicas: by worker, each replica's id and its rows.
    #[serde(default)]
    pub batch_limits: BTreeMap<String, Vec<(u32, u32)>>,
}

/// What no file has, of a router without `state_dir`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frozen {
    #[serde(default)]
    pub jobs: Option<Records>,
    #[serde(default)]
    pub orders: Option<Records>,
    #[serde(default)]
    pub learned: Option<learned::Memory>,
}

/// The newest version that both speak.
pub fn common(theirs: &[u32]) -> Option<u32> {
    VERSIONS.iter().filter(|version| theirs.contains(version)).max().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_agree_on_the_newest_both_speak() {
        assert_eq!(common(&[7, 1, 0]), Some(1));
        assert_eq!(common(&[2, 3]), None);
    }

    #[test]
    fn unknown_fields_of_a_newer_program_are_ignored() {
        let text = r#"{"hello":{"versions":[1,2],"program":"9.9","command":"up","mood":"good"}}"#;
        let FromNew::Hello(hello) = serde_json::from_str(text).unwrap() else { panic!("{text}") };
        assert_eq!((hello.versions, hello.command.as_str()), (vec![1, 2], "up"));
        let text = r#"{"offer":{"version":1,"program":"9.9","listeners":["admin"],"more":{}}}"#;
        let FromOld::Offer(offer) = serde_json::from_str(text).unwrap() else { panic!("{text}") };
        assert_eq!(offer.listeners, ["admin"]);
        assert!(offer.workers.is_empty() && offer.run_dir.is_none());
    }
}

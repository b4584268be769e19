//! What the fleet knows of its workers.

use std::time::Duration;

use policy::fleet::SliceName;
use protocol::Report;
use serde::{Deserialize, Serialize};

use super::{Fleet, Member, SILENT};

/// A worker and what it last reported, the tokens of its executors included.
#[derive(Clone, Debug)]
pub struct View {
    pub name: String,
    pub presence: Presence,
    pub silent: Duration,
    /// The generation of the desired state it was sent last.
    pub desired_generation: Option<u64>,
    pub report: Option<Report>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    Connected,
    Silent,
    Away,
}

impl Presence {
    pub const ALL: [(&'static str, Self); 3] =
        [("connected", Self::Connected), ("silent", Self::Silent), ("away", Self::Away)];
}

impl Fleet {
    pub fn views(&self) -> Vec<View> {
        let known = self.known.lock();
        let view = |(name, member): (&String, &Member)| View {
            name: name.clone(),
            presence: presence(member),
            silent: member.silent(),
            desired_generation: member.desired.borrow().as_ref().map(|desired| desired.generation),
            report: member.report.clone(),
        };
        known.workers.iter().map(view).collect()
    }
}

fn presence(member: &Member) -> Presence {
    match member.conversation {
        Some(_) if member.silent() < SILENT => Presence::Connected,
        Some(_) => Presence::Silent,
        None => Presence::Away,
    }
}

/// `label` as it is known among several workers.
pub fn labelled(worker: &str, label: &str) -> String {
    SliceName::of(worker, label).0
}

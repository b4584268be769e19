//! The fleet passes from one router process to the next.

use std::collections::BTreeMap;

use protocol::Report;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{Fleet, GONE, Member, asking};

impl Fleet {
    /// Lets workers join and speak, or hangs up on all of them: they dial again, and find whoever
    /// accepts then.
    pub fn speak(&self, open: bool) {
        self.open.send_replace(open);
    }

    pub fn speaks(&self) -> bool {
        *self.open.borrow()
    }

    pub(super) fn open(&self) -> watch::Receiver<bool> {
        self.open.subscribe()
    }

    /// What every worker that is not gone has said last.
    pub fn reports(&self) -> BTreeMap<String, Report> {
        let known = self.known.lock();
        let present = known.workers.iter().filter(|(_, member)| member.away() < GONE);
        present.filter_map(|(name, member)| Some((name.clone(), member.report.clone()?))).collect()
    }

    /// Takes what a worker said to the router before this one, as if it had been here and had just
    /// left.
    pub fn seed(&self, name: &str, report: Report) {
        let mut known = self.known.lock();
        let there = self.attach(name, &report);
        known.attached.insert(name.to_owned(), there);
        let member = Member {
            report: Some(report),
            heard_at: Instant::now(),
            conversation: None,
            desired: watch::Sender::new(None),
            asking: mpsc::channel(asking::WAITING).0,
        };
        known.workers.entry(name.to_owned()).or_insert(member);
        drop(known);
        self.poke();
    }
}

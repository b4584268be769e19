//! What a router that comes to lead, or no longer does, needs of the fleet.

use std::collections::BTreeSet;

use super::{Fleet, Member, SILENT};

impl Fleet {
    /// Takes back what any worker was told that has not heard it yet.
    pub fn withdraw(&self) {
        for member in self.known.lock().workers.values() {
            member.desired.send_replace(None);
        }
    }

    pub fn names(&self) -> BTreeSet<String> {
        self.known.lock().workers.keys().cloned().collect()
    }

    /// Whether all of `expected` are known, and every worker that is there has said what it has since
    /// it heard of the leader of `term`, after which it refuses any before.
    pub fn has_heard(&self, term: u64, expected: &BTreeSet<String>) -> bool {
        let known = self.known.lock();
        let heard = |member: &Member| {
            let there = member.conversation.is_some() && member.silent() < SILENT;
            !there || member.report.as_ref().is_some_and(|report| report.term == term)
        };
        known.workers.values().all(heard)
            && expected.iter().all(|name| known.workers.contains_key(name))
    }
}

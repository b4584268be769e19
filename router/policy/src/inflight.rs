//! A batch on its way to or on a replica.

use std::time::Duration;

use crate::{moment::Moment, queue::Waiting};

/// A batch in flight and the requests in it.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) batch: u64,
    pub(crate) key: u32,
    pub(crate) sent_at: Moment,
    /// When it reached the front of its replica: sent, or when the batch before it ended.
    pub(crate) started_at: Moment,
    pub(crate) rows: u32,
    /// Whether the batch limit allowed no more.
    pub(crate) full: bool,
    pub(crate) due_at: Moment,
    pub(crate) expects: Duration,
    /// What it rarely exceeds.
    pub(crate) allows: Duration,
    pub(crate) members: Vec<Member>,
}

/// A request in a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) waiting: Waiting,
    /// Answered already: its client left or its deadline passed.
    pub(crate) gone: bool,
}

impl Flight {
    /// When it should end.
    pub(crate) fn expected_end(&self) -> Moment {
        self.started_at + self.expects
    }

    /// Whether nobody waits for it any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.members.iter().all(|member| member.gone)
    }

    /// The earliest deadline of those still waiting for it.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.members
            .iter()
            .filter(|member| !member.gone)
            .map(|member| member.waiting.deadline)
            .min()
    }

    /// Marks `id` answered; false if it is not here or was answered before.
    pub(crate) fn release(&mut self, id: u64) -> bool {
        match self.members.iter_mut().find(|member| member.waiting.id == id && !member.gone) {
            Some(member) => {
                member.gone = true;
                true
            }
            None => false,
        }
    }
}

//! Who leads, of several routers that share a store with leases.
//!
//! A candidate has a lease there, tries to set the leader's key with it where there is none, and
//! renews it. The revision at which the key came to be is its term: it only rises, and whoever is
//! told something compares it.
//!
//! A leader leads only while its own clock says that nobody else can: the lease is counted from when
//! the last renewal that was answered had been sent, less a part for clocks that run apart. One that
//! was paused, or cut off, has hence stopped before the store gives the key to another; and a tenure
//! that lapsed is never taken up again.

use std::time::Duration;

use crate::moment::Moment;

/// A lease is renewed this many times while it lasts.
const RENEWALS: u32 = 3;
/// The part of a lease that is not relied upon.
const MARGIN: u32 = 10;
/// How often one that follows tries to lead, in parts of a lease.
const TRIES: u32 = 6;
/// How soon something that failed is tried again, in parts of a lease.
const HASTE: u32 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A lease; that of before, if there was one, is given up first.
    Grant {
        before: Option<u64>,
    },
    Campaign {
        lease: u64,
    },
    Renew {
        lease: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted {
        lease: u64,
        ttl: Duration,
    },
    Won {
        /// The revision at which it came to be.
        term: u64,
    },
    Lost,
    Renewed,
    Gone,
    Failed,
}

#[derive(Clone, Debug)]
pub struct Candidate {
    /// What is asked for, until it is known what is granted.
    ttl: Duration,
    state: State,
    campaign: Moment,
    /// Nothing is asked before this: what failed is not repeated at once.
    rest: Moment,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Apart { before: Option<u64> },
    With { lease: u64, renewed: Moment, term: Option<u64> },
}

impl Candidate {
    pub fn new(ttl: Duration) -> Self {
        let (campaign, rest) = (Moment::default(), Moment::default());
        Self { ttl, state: State::Apart { before: None }, campaign, rest }
    }

    pub fn next(&self) -> (Ask, Moment) {
        match self.state {
            State::Apart { before } => (Ask::Grant { before }, self.rest),
            State::With { lease, renewed, term } => {
                let renew = renewed + self.ttl / RENEWALS;
                if term.is_some() || renew <= self.campaign {
                    (Ask::Renew { lease }, renew.max(self.rest))
                } else {
                    (Ask::Campaign { lease }, self.campaign.max(self.rest))
                }
            }
        }
    }

    /// The leader's key is said to be gone: there is no reason to wait.
    pub fn vacant(&mut self, now: Moment) {
        if let State::With { term: None, .. } = self.state {
            self.campaign = now;
        }
    }

    /// Takes in what came of `ask`, which was sent at `sent`.
    pub fn answered(&mut self, ask: Ask, answer: Answer, sent: Moment, now: Moment) {
        // What had lapsed when it was asked for is not taken up again, whatever the answer.
        self.lapse(sent);
        match (ask, answer, &mut self.state) {
            (Ask::Grant { .. }, Answer::Granted { lease, ttl }, state) => {
                self.ttl = ttl;
                *state = State::With { lease, renewed: sent, term: None };
                self.campaign = now;
            }
            (Ask::Campaign { .. }, Answer::Won { term: won }, State::With { term, .. }) => {
                *term = Some(won);
            }
            (Ask::Campaign { .. }, Answer::Lost, _) => self.campaign = now + self.ttl / TRIES,
            (Ask::Renew { .. }, Answer::Renewed, State::With { renewed, .. }) => *renewed = sent,
            (_, Answer::Gone, State::With { .. }) => self.part(),
            _ => self.rest = now + self.ttl / HASTE,
        }
        self.lapse(now);
    }

    /// The term in which it leads now, if it does.
    pub fn term(&self, now: Moment) -> Option<u64> {
        match self.state {
            State::With { term, renewed, .. } => term.filter(|_| now < self.until(renewed)),
            State::Apart { .. } => None,
        }
    }

    pub fn lease(&self) -> Option<u64> {
        match self.state {
            State::With { lease, .. } => Some(lease),
            State::Apart { .. } => None,
        }
    }

    /// Gives up a lease that may have ended: what lapsed is not taken up again.
    pub fn lapse(&mut self, now: Moment) {
        if let State::With { renewed, .. } = self.state
            && now >= self.until(renewed)
        {
            self.part();
        }
    }

    /// Leads no more, and has no lease but one to give up.
    pub fn part(&mut self) {
        self.state = State::Apart { before: self.lease() };
    }

    fn until(&self, renewed: Moment) -> Moment {
        renewed + (self.ttl - self.ttl / MARGIN)
    }
}

#[cfg(test)]
mod tests;

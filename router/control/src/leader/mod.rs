//! Whether this router may act, and in which term.
//!
//! A router without `[etcd]` is alone: it leads in term 0, always. With it, [`election`] says which
//! router leads.
//!
//! [`election`]: crate::election

mod peers;

use std::{sync::Arc, time::Duration};

use etcd::Client;
use parking_lot::Mutex;
use policy::lead::{Answer, Ask, Candidate};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

pub use self::peers::{Load, Peers, Registration};
use crate::clock::WallClock;

#[derive(Debug)]
pub struct Leadership {
    /// Absent for a router that is alone.
    elected: Option<Mutex<Elected>>,
    client: Option<Arc<Client>>,
    peers: Peers,
    news: watch::Sender<()>,
}

#[derive(Debug)]
struct Elected {
    candidate: Candidate,
    clock: WallClock,
    ready: Option<u64>,
    /// The term in which it was last seen to lead.
    seen: Option<u64>,
    leader: Option<Leader>,
    problem: Option<String>,
    rival: Option<String>,
    times: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    pub name: String,
    pub admin: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    #[default]
    Alone,
    Leads,
    /// It was made the leader and does not know enough yet to plan.
    TakesOver,
    Follows,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeadState {
    pub role: Role,
    pub term: Option<u64>,
    pub leader: Option<Leader>,
    pub problem: Option<String>,
    pub peers: Vec<String>,
    pub times_led: u64,
    pub etcd: Option<EtcdState>,
}

/// How etcd has answered this router since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EtcdState {
    pub answered: u64,
    pub failed: u64,
    /// Spent waiting for answers, in seconds.
    pub waited_s: f64,
}

/// Whether a router began to lead, or no longer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Began { term: u64 },
    Ended { term: u64 },
}

impl Leadership {
    /// Of a router that is the only one.
    pub fn alone() -> Arc<Self> {
        let (peers, news) = (Peers::default(), watch::Sender::new(()));
        Arc::new(Self { elected: None, client: None, peers, news })
    }

    /// Of one among several, which leads only once it is elected for leases of `ttl`.
    pub(crate) fn elected(ttl: Duration, client: Arc<Client>) -> Arc<Self> {
        let elected = Elected {
            candidate: Candidate::new(ttl),
            clock: WallClock::start(),
            ready: None,
            seen: None,
            leader: None,
            problem: None,
            rival: None,
            times: 0,
        };
        let (peers, news) = (Peers::default(), watch::Sender::new(()));
        let elected = Some(Mutex::new(elected));
        Arc::new(Self { elected, client: Some(client), peers, news })
    }

    /// The term in which it leads at this very moment, if it does.
    pub fn term(&self) -> Option<u64> {
        let Some(elected) = &self.elected else { return Some(0) };
        elected.lock().term()
    }

    /// As [`Leadership::term`], once it has taken over: only then may it plan.
    pub fn acts(&self) -> Option<u64> {
        let Some(elected) = &self.elected else { return Some(0) };
        let elected = elected.lock();
        elected.term().filter(|term| elected.ready == Some(*term))
    }

    pub fn leader(&self) -> Option<Leader> {
        self.elected.as_ref().and_then(|elected| elected.lock().leader.clone())
    }

    /// Why it may not use its name, if there is a reason; nothing at all where it has none.
    pub fn name_taken(&self) -> Option<Option<String>> {
        self.elected.as_ref().map(|elected| elected.lock().name_taken())
    }

    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Changes when it may do other things than before.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    pub fn state(&self) -> LeadState {
        let Some(elected) = &self.elected else { return LeadState::default() };
        let elected = elected.lock();
        let term = elected.term();
        LeadState {
            role: match term {
                Some(term) if elected.ready == Some(term) => Role::Leads,
                Some(_) => Role::TakesOver,
                None => Role::Follows,
            },
            term,
            leader: elected.leader.clone(),
            problem: elected.problem.clone().or_else(|| elected.name_taken()),
            peers: self.peers.names(),
            times_led: elected.times,
            etcd: self.client.as_ref().map(|client| {
                let counts = client.counts();
                let (answered, failed) = (counts.answered, counts.failed);
                EtcdState { answered, failed, waited_s: counts.waited.as_secs_f64() }
            }),
        }
    }

    /// What to ask of etcd next, and when.
    pub(crate) fn next(&self) -> Option<(Ask, Instant)> {
        let mut elected = self.elected.as_ref()?.lock();
        let now = elected.clock.now();
        elected.candidate.lapse(now);
        let (ask, at) = elected.candidate.next();
        Some((ask, elected.clock.instant(at)))
    }

    /// Takes in what etcd said to what was asked at `sent`; whether it leads otherwise than before.
    pub(crate) fn answered(&self, ask: Ask, answer: Answer, sent: Instant) -> Option<Turn> {
        let mut elected = self.elected.as_ref()?.lock();
        let (sent, now) = (elected.clock.moment(sent), elected.clock.now());
        elected.candidate.answered(ask, answer, sent, now);
        let term = elected.term();
        let before = std::mem::replace(&mut elected.seen, term);
        let turn = match (before, term) {
            (before, Some(term)) if before != Some(term) => {
                elected.times += 1;
                Some(Turn::Began { term })
            }
            (Some(term), None) => {
                elected.ready = None;
                Some(Turn::Ended { term })
            }
            (Some(_) | None, _) => None,
        };
        drop(elected);
        if turn.is_some() {
            self.news.send_replace(());
        }
        turn
    }

    pub(crate) fn ready(&self, term: u64) {
        let Some(elected) = &self.elected else { return };
        elected.lock().ready = Some(term);
        self.news.send_replace(());
    }

    /// Says who leads, or that nobody does, in which case there is no reason to wait.
    pub(crate) fn set_leader(&self, leader: Option<Leader>) {
        let Some(elected) = &self.elected else { return };
        let mut elected = elected.lock();
        if leader.is_none() {
            let now = elected.clock.now();
            elected.candidate.vacant(now);
        }
        elected.leader = leader;
    }

    /// Says why etcd is of no use, or that it is of use; whether that is news.
    pub(crate) fn set_problem(&self, problem: Option<String>) -> bool {
        let Some(elected) = &self.elected else { return false };
        let mut elected = elected.lock();
        let news = elected.problem.is_some() != problem.is_some();
        elected.problem = problem;
        news
    }

    /// Says where another router has this one's name, or that none has; whether that is news.
    pub(crate) fn set_rival(&self, rival: Option<String>) -> bool {
        let Some(elected) = &self.elected else { return false };
        let mut elected = elected.lock();
        let news = elected.rival != rival;
        elected.rival = rival;
        news
    }

    /// Leads no more in `term`, or in any: another does, or shall.
    pub(crate) fn depose(&self, term: Option<u64>) {
        let Some(elected) = &self.elected else { return };
        let mut elected = elected.lock();
        if elected.term().is_some_and(|led| term.is_none_or(|term| term == led)) {
            elected.candidate.part();
            drop(elected);
            self.news.send_replace(());
        }
    }

    pub(crate) fn lease(&self) -> Option<u64> {
        self.elected.as_ref()?.lock().candidate.lease()
    }
}

impl Elected {
    fn term(&self) -> Option<u64> {
        self.candidate.term(self.clock.now())
    }

    fn name_taken(&self) -> Option<String> {
        let rival = self.rival.as_ref()?;
        Some(format!("the router at {rival} has the same name in [etcd]; give one of them another"))
    }
}

//! The workers: what they report and what they are told.
//!
//! A report replaces the one before it. The data plane is attached to every ready replica of a
//! report, and detached from those that are not in it any more. A worker that falls silent takes
//! nothing out of rotation: its executors are asked, not it.

mod asking;
mod door;
mod handover;
mod led;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
pub use policy::fleet::LOCAL;
use policy::fleet::{Absent, Advice, ReplicaId, SliceName};
use protocol::{Desired, ReplicaState, Report, ToWorker};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use self::asking::Questions;

pub use self::{
    asking::{LogQuestion, Unanswered},
    door::{Trust, listen, welcome},
    view::{Presence, View, labelled},
};
use crate::{
    leader::Leadership,
    plane::{Attach, DataPlane},
};

/// How long a worker may say nothing before it is called silent; it reports each second.
const SILENT: Duration = Duration::from_secs(3);

/// How long a worker may be away before its replicas are placed elsewhere.
const GONE: Duration = Duration::from_secs(30);

/// How long a worker that is gone is still shown.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The most workers that may be known at once.
const MAX_WORKERS: usize = 4096;

#[derive(Debug)]
pub struct Fleet {
    plane: Arc<dyn DataPlane>,
    leadership: Arc<Leadership>,
    known: Mutex<Known>,
    questions: Questions,
    changed: watch::Sender<()>,
    /// Whether workers may join and speak.
    open: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Known {
    workers: BTreeMap<String, Member>,
    /// By worker, the replicas that the data plane was attached to, those of workers that are forgotten
    /// included.
    attached: BTreeMap<String, BTreeSet<u32>>,
    conversations: u32,
    closed: bool,
}

#[derive(Debug)]
struct Member {
    report: Option<Report>,
    heard_at: Instant,
    /// The conversation with it, while there is one.
    conversation: Option<u32>,
    desired: watch::Sender<Option<Arc<Desired>>>,
    /// Takes questions for the conversation under way.
    asking: mpsc::Sender<ToWorker>,
}

/// A worker as [`Fleet::look`] finds it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub worker: String,
    pub report: Report,
}

/// A worker that may speak, and what it shall be told.
#[derive(Debug)]
struct Entered {
    conversation: u32,
    desired: watch::Receiver<Option<Arc<Desired>>>,
    questions: mpsc::Receiver<ToWorker>,
}

impl Fleet {
    /// A fleet without workers yet, whose replicas `plane` serves, of a router that may do what
    /// `leadership` says.
    pub fn new(plane: Arc<dyn DataPlane>, leadership: Arc<Leadership>) -> Self {
        Self {
            plane,
            leadership,
            known: Mutex::default(),
            questions: Questions::default(),
            changed: watch::Sender::new(()),
            open: watch::Sender::new(true),
        }
    }

    /// Changes when a report comes in, a worker leaves, or [`Fleet::poke`] is called.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub fn poke(&self) {
        self.changed.send_replace(());
    }

    /// This router ends: that workers leave is no news any more, nor what they report.
    pub fn close(&self) {
        self.known.lock().closed = true;
    }

    /// Every worker that is not gone. Those gone for long are forgotten.
    pub fn look(&self) -> Vec<Seen> {
        let mut known = self.known.lock();
        known.workers.retain(|_, member| member.away() < FORGOTTEN);
        let present = known.workers.iter().filter(|(_, member)| member.away() < GONE);
        let seen = present.filter_map(|(name, member)| {
            Some(Seen { worker: name.clone(), report: member.report.clone()? })
        });
        seen.collect()
    }

    pub fn knows(&self, worker: &str) -> bool {
        self.known.lock().workers.contains_key(worker)
    }

    pub fn desire(&self, worker: &str, desired: Desired) {
        if let Some(member) = self.known.lock().workers.get(worker) {
            member.desired.send_replace(Some(Arc::new(desired)));
        }
    }

    /// Lets a worker in that showed it may come, unless one of its name speaks already.
    fn enter(&self, name: &str) -> Result<Entered, String> {
        let mut known = self.known.lock();
        known.conversations += 1;
        let conversation = known.conversations;
        let (asking, questions) = mpsc::channel(asking::WAITING);
        if let Some(member) = known.workers.get_mut(name) {
            if member.conversation.is_some() && member.heard_at.elapsed() < SILENT {
                return Err(format!("a worker named {name:?} is connected already"));
            }
            member.conversation = Some(conversation);
            member.heard_at = Instant::now();
            member.asking = asking;
            return Ok(Entered { conversation, desired: member.desired.subscribe(), questions });
        }
        if known.workers.len() >= MAX_WORKERS {
            return Err(format!("there are {MAX_WORKERS} workers already"));
        }
        let (sender, desired) = watch::channel(None);
        let member = Member {
            report: None,
            heard_at: Instant::now(),
            conversation: Some(conversation),
            desired: sender,
            asking,
        };
        known.workers.insert(name.to_owned(), member);
        Ok(Entered { conversation, desired, questions })
    }

    /// Whether it was to be expected: the worker had said that it leaves, or this router ends.
    fn leave(&self, name: &str, conversation: u32) -> bool {
        let mut known = self.known.lock();
        let mut expected = known.closed || !*self.open.borrow();
        if let Some(member) = known.workers.get_mut(name)
            && member.conversation == Some(conversation)
        {
            member.conversation = None;
            expected |= member.report.as_ref().is_some_and(|report| report.leaving);
        }
        drop(known);
        self.changed.send_replace(());
        expected
    }

    /// Takes a report, unless another conversation has replaced this one.
    fn take(&self, name: &str, conversation: u32, report: Report) -> bool {
        let mut known = self.known.lock();
        let Known { workers, attached, closed, .. } = &mut *known;
        let Some(member) =
            workers.get_mut(name).filter(|member| member.conversation == Some(conversation))
        else {
            return false;
        };
        member.heard_at = Instant::now();
        if *closed {
            return true;
        }
        let there = self.attach(name, &report);
        let before = attached.insert(name.to_owned(), there.clone()).unwrap_or_default();
        for replica in before.difference(&there) {
            self.plane.detach(&ReplicaId { worker: name.to_owned(), replica: *replica });
        }
        member.report = Some(report);
        drop(known);
        self.changed.send_replace(());
        true
    }

    /// Has the data plane take up what a worker reports; the replicas that are to stay attached.
    fn attach(&self, worker: &str, report: &Report) -> BTreeSet<u32> {
        let mut there = BTreeSet::new();
        let slices = report.gpus.iter().flat_map(|gpu| {
            let simulated = gpu.is_simulated();
            gpu.slices.iter().map(move |slice| (simulated, slice))
        });
        for (simulated, slice) in slices {
            let name = SliceName::of(worker, &slice.slice);
            for replica in &slice.replicas {
                let id = ReplicaId { worker: worker.to_owned(), replica: replica.replica };
                match &replica.state {
                    ReplicaState::Ready(ready) => {
                        there.insert(id.replica);
                        let attach = Attach {
                            model: &replica.model,
                            slice: &name,
                            profile: &slice.profile,
                            simulated,
                            digest: replica.digest,
                            version: &replica.version,
                            ready,
                        };
                        self.plane.attach(&id, &attach);
                        if replica.serves {
                            self.plane.admit(&id);
                        }
                    }
                    ReplicaState::Draining => {
                        there.insert(id.replica);
                        self.plane.drain(&id);
                    }
                    ReplicaState::Failed { reason, crashed } => {
                        let absent = Absent::Failed { why: reason.clone(), returns: *crashed };
                        self.plane.advise(&replica.model, Advice { absent, loads_in: None });
                    }
                    ReplicaState::Starting
                    | ReplicaState::Loading
                    | ReplicaState::Warming { .. } => {}
                }
            }
        }
        there
    }
}

impl Member {
    fn silent(&self) -> Duration {
        self.heard_at.elapsed()
    }

    /// How long it has been away; a connection that is quiet for long counts as none.
    fn away(&self) -> Duration {
        match self.conversation {
            Some(_) if self.silent() < GONE => Duration::ZERO,
            Some(_) | None => self.silent(),
        }
    }
}

//! What the workers say, and the connections to the replicas they report.
//!
//! A report replaces what was known of its worker. For every ready replica there is one task that
//! connects, brings it into rotation once it is admitted, carries replies in, and takes it out again
//! when the connection ends; while the report stands it tries again. A worker that falls silent
//! takes nothing out of rotation: its executors are asked, not it.

mod asking;
mod door;
mod led;
mod serving;
mod view;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use protocol::{Desired, ReadyReplica, ReplicaState, Report, SliceReport, ToWorker};
use tls::ClientConfig;
use tokio::{
    sync::{Notify, futures::Notified, mpsc, watch},
    task::JoinHandle,
    time::Instant,
};

pub use policy::fleet::LOCAL;

pub(crate) use self::view::labelled;
use self::{
    asking::Questions,
    serving::{Flags, Serving},
};
pub use self::{
    asking::{LogQuestion, Unanswered},
    door::{Trust, listen, welcome},
    view::{Presence, View},
};
use crate::{
    dispatch::Process,
    lead::Standing,
    model::{Failure, Model, Models},
    orders::Orders,
    transport::Hello,
};

/// How long a worker may say nothing before it is called silent; it reports each second.
const SILENT: Duration = Duration::from_secs(3);

/// How long a worker may be away before its replicas are placed elsewhere.
const GONE: Duration = Duration::from_secs(30);

/// How long a worker that is gone is still shown.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The most workers that may be known at once.
const MAX_WORKERS: usize = 4096;

/// The workers and their replicas.
#[derive(Debug)]
pub struct Fleet {
    models: Arc<ArcSwap<Models>>,
    standing: Arc<Standing>,
    known: Mutex<Known>,
    orders: Arc<Orders>,
    questions: Questions,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Known {
    workers: BTreeMap<String, Member>,
    served: HashMap<Key, Connection>,
    /// By where they listen and what they want to hear.
    processes: HashMap<Hello, Weak<Process>>,
    /// By whom executors that speak TLS are known.
    authority: Arc<ArcSwapOption<ClientConfig>>,
    /// Numbers given out: of replicas to dispatchers, and of conversations.
    numbers: u32,
    /// Whether this router is about to end.
    closed: bool,
}

/// A worker's name, and a replica's id on it.
type Key = (String, u32);

/// A worker.
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

#[derive(Debug)]
struct Connection {
    number: u32,
    model: Arc<Model>,
    hello: Hello,
    flags: Arc<Flags>,
    task: JoinHandle<()>,
}

/// A worker as [`Fleet::look`] finds it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its name.
    pub worker: String,
    /// Its last report.
    pub report: Report,
    /// Its replicas that can be sent batches now, or could if they were admitted.
    pub serving: HashSet<u32>,
}

/// A worker that may speak, and what it shall be told.
#[derive(Debug)]
struct Entered {
    conversation: u32,
    desired: watch::Receiver<Option<Arc<Desired>>>,
    questions: mpsc::Receiver<ToWorker>,
}

impl Fleet {
    /// A fleet of nobody yet, for these models, under these orders, of a router that may do what
    /// `standing` says.
    pub fn new(models: Arc<ArcSwap<Models>>, orders: Arc<Orders>, standing: Arc<Standing>) -> Self {
        Self {
            models,
            orders,
            standing,
            known: Mutex::default(),
            questions: Questions::default(),
            changed: Arc::default(),
        }
    }

    /// Executors that speak TLS are known by `authority` from the next connection on.
    pub fn trust(&self, authority: Option<Arc<ClientConfig>>) {
        self.known.lock().authority.store(authority);
    }

    /// Done when a replica next comes into rotation, a report comes in, or the models change.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Wakes whoever waits for a change.
    pub fn poke(&self) {
        self.changed.notify_waiters();
    }

    /// Hangs up on every replica for good, so that neither their end nor their workers' is news.
    pub fn close(&self) {
        let mut known = self.known.lock();
        known.closed = true;
        for connection in known.served.drain().map(|(_, connection)| connection) {
            connection.task.abort();
        }
    }

    /// Every worker that is not gone; one that is drained is as good as leaving. Those gone for long are
    /// forgotten.
    pub fn look(&self) -> Vec<Seen> {
        let orders = self.orders.standing();
        let mut known = self.known.lock();
        let Known { workers, served, .. } = &mut *known;
        workers.retain(|_, member| member.away() < FORGOTTEN);
        let present = workers.iter().filter(|(_, member)| member.away() < GONE);
        let seen = present.filter_map(|(name, member)| {
            let mine = served.iter().filter(|((worker, _), _)| worker == name);
            let serving = mine.filter(|(_, one)| one.flags.connected.load(Ordering::Acquire));
            let mut report = member.report.clone()?;
            report.leaving |= orders.drains(name);
            Some(Seen {
                worker: name.clone(),
                report,
                serving: serving.map(|((_, replica), _)| *replica).collect(),
            })
        });
        seen.collect()
    }

    /// Whether there is a worker of that name.
    pub fn knows(&self, worker: &str) -> bool {
        self.known.lock().workers.contains_key(worker)
    }

    /// Tells a worker what shall be.
    pub fn desire(&self, worker: &str, desired: Desired) {
        if let Some(member) = self.known.lock().workers.get(worker) {
            member.desired.send_replace(Some(Arc::new(desired)));
        }
    }

    /// Lets a replica be given batches.
    pub fn admit(&self, worker: &str, replica: u32) {
        if let Some(connection) = self.known.lock().served.get(&(worker.to_owned(), replica)) {
            connection.flags.admit();
        }
    }

    /// Whether a replica that can be sent batches is in rotation; nothing for one that cannot.
    pub fn in_rotation(&self, worker: &str, replica: u32) -> Option<bool> {
        let known = self.known.lock();
        let flags = &known.served.get(&(worker.to_owned(), replica))?.flags;
        flags.connected.load(Ordering::Acquire).then(|| flags.attached.load(Ordering::Acquire))
    }

    /// Gives a replica no more batches, and says whether it has none.
    pub fn drain(&self, worker: &str, replica: u32) -> bool {
        self.known.lock().drain(&(worker.to_owned(), replica))
    }

    /// Lets a worker in that showed it may come, unless one of its name speaks already.
    fn enter(&self, name: &str) -> Result<Entered, String> {
        let mut known = self.known.lock();
        known.numbers += 1;
        let conversation = known.numbers;
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
        let mut expected = known.closed;
        if let Some(member) = known.workers.get_mut(name)
            && member.conversation == Some(conversation)
        {
            member.conversation = None;
            expected |= member.report.as_ref().is_some_and(|report| report.leaving);
        }
        drop(known);
        self.changed.notify_waiters();
        expected
    }

    /// Takes a report, unless another conversation has replaced this one.
    fn take(&self, name: &str, conversation: u32, report: Report) -> bool {
        let models = self.models.load();
        let mut known = self.known.lock();
        match known.workers.get_mut(name) {
            Some(member) if member.conversation == Some(conversation) => {
                member.heard_at = Instant::now();
            }
            Some(_) | None => return false,
        }
        if known.closed {
            return true;
        }
        let mut there = HashSet::new();
        for gpu in &report.gpus {
            for slice in &gpu.slices {
                for replica in &slice.replicas {
                    let Some(model) = models.get(&replica.model) else { continue };
                    match &replica.state {
                        ReplicaState::Ready(ready) => {
                            there.insert(replica.replica);
                            let key = (name.to_owned(), replica.replica);
                            known.connect(key.clone(), slice, model, ready, &self.changed);
                            if let (true, Some(one)) = (replica.serves, known.served.get(&key)) {
                                one.flags.admit();
                            }
                        }
                        ReplicaState::Draining => {
                            there.insert(replica.replica);
                            known.drain(&(name.to_owned(), replica.replica));
                        }
                        ReplicaState::Failed { reason, crashed } => {
                            let (reason, returns) = (reason.clone(), *crashed);
                            model.failed(Failure { reason, returns });
                        }
                        ReplicaState::Starting
                        | ReplicaState::Loading
                        | ReplicaState::Warming { .. } => {}
                    }
                }
            }
        }
        known.disconnect(|(worker, replica)| worker == name && !there.contains(replica));
        if let Some(member) = known.workers.get_mut(name) {
            member.report = Some(report);
        }
        drop(known);
        self.changed.notify_waiters();
        true
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

impl Known {
    /// Gives a replica no more batches, and says whether it has none.
    fn drain(&self, key: &Key) -> bool {
        let Some(connection) = self.served.get(key) else { return true };
        connection.flags.draining.store(true, Ordering::Release);
        let dispatcher = connection.model.dispatcher();
        dispatcher.drain(connection.number);
        !dispatcher.is_busy(connection.number)
    }

    #[expect(clippy::too_many_arguments, reason = "who, where, of what, how, and whom to tell")]
    fn connect(
        &mut self,
        key: Key,
        slice: &SliceReport,
        model: &Arc<Model>,
        ready: &ReadyReplica,
        changed: &Arc<Notify>,
    ) {
        let hello = Hello { address: ready.address.clone(), token: ready.token.clone() };
        let same = |one: &Connection| one.hello == hello && Arc::ptr_eq(&one.model, model);
        if self.served.get(&key).is_some_and(same) {
            return;
        }
        self.disconnect(|other| *other == key);
        self.numbers += 1;
        let process = self.process(&hello);
        let (worker, replica) = &key;
        let serving = Serving {
            number: self.numbers,
            replica: *replica,
            slice: labelled(worker, &slice.slice),
            profile: slice.profile.clone(),
            model: Arc::clone(model),
            hello: hello.clone(),
            authority: Arc::clone(&self.authority),
            process,
            ready: ready.clone(),
            flags: Arc::default(),
            changed: Arc::clone(changed),
        };
        let connection = Connection {
            number: self.numbers,
            model: Arc::clone(model),
            hello,
            flags: Arc::clone(&serving.flags),
            task: tokio::spawn(serving.keep()),
        };
        self.served.insert(key, connection);
    }

    /// The process behind `hello`, the same for all replicas in it.
    fn process(&mut self, hello: &Hello) -> Arc<Process> {
        if let Some(known) = self.processes.get(hello).and_then(Weak::upgrade) {
            return known;
        }
        self.processes.retain(|_, process| process.strong_count() > 0);
        let process = Arc::new(Process::default());
        self.processes.insert(hello.clone(), Arc::downgrade(&process));
        process
    }

    fn disconnect(&mut self, which: impl Fn(&Key) -> bool) {
        for (_, connection) in self.served.extract_if(|key, _| which(key)) {
            connection.task.abort();
            connection.model.dispatcher().detach(connection.number);
        }
    }
}

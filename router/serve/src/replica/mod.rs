//! Connections to the replicas that workers report.
//!
//! Each replica has one task. It connects, brings the replica into rotation once that is admitted,
//! carries results in, and takes the replica out of rotation when the connection ends. Until the
//! replica is detached, the task reconnects.

mod connection;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Weak, atomic::Ordering},
};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use policy::fleet::{Link, ReplicaId, SliceName};
use protocol::ReadyReplica;
use tls::ClientConfig;
use tokio::{sync::watch, task::JoinHandle};

use self::connection::{Flags, Serving};
use crate::{dispatch::Process, model::Model, transport::Hello};

/// Every replica that is connected to, or is being.
#[derive(Debug)]
pub struct Replicas {
    connections: Mutex<Connections>,
    authority: Arc<ArcSwapOption<ClientConfig>>,
    changed: Arc<watch::Sender<()>>,
}

#[derive(Debug, Default)]
struct Connections {
    by_id: HashMap<ReplicaId, Connection>,
    /// By their address and the token they expect.
    processes: HashMap<Hello, Weak<Process>>,
    last_number: u32,
    /// What replicas had in the process that this one replaced.
    batch_limits: HashMap<ReplicaId, u32>,
    closed: bool,
}

#[derive(Debug)]
struct Connection {
    number: u32,
    model: Arc<Model>,
    hello: Hello,
    digest: u64,
    flags: Arc<Flags>,
    task: JoinHandle<()>,
}

/// A replica as its worker reports it.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    pub slice: &'a SliceName,
    pub profile: &'a str,
    pub digest: u64,
    pub version: &'a str,
    pub ready: &'a ReadyReplica,
}

impl Default for Replicas {
    fn default() -> Self {
        Self {
            connections: Mutex::default(),
            authority: Arc::default(),
            changed: Arc::new(watch::Sender::new(())),
        }
    }
}

impl Replicas {
    /// Verifies executors that speak TLS by `authority`, from the next connection on.
    pub fn trust(&self, authority: Option<Arc<ClientConfig>>) {
        self.authority.store(authority);
    }

    /// Connects to a replica of `model`, unless that is connected to already. Must be called inside a
    /// runtime.
    pub fn attach(&self, id: &ReplicaId, model: &Arc<Model>, endpoint: &Endpoint<'_>) {
        let ready = endpoint.ready;
        let hello = Hello { address: ready.address.clone(), token: ready.token.clone() };
        let mut connections = self.connections.lock();
        let same = |one: &Connection| one.hello == hello && Arc::ptr_eq(&one.model, model);
        if connections.closed || connections.by_id.get(id).is_some_and(same) {
            return;
        }
        connections.detach(id);
        connections.last_number += 1;
        let serving = Serving {
            number: connections.last_number,
            replica: id.replica,
            slice: endpoint.slice.as_str().to_owned(),
            profile: endpoint.profile.to_owned(),
            digest: endpoint.digest,
            version: endpoint.version.to_owned(),
            model: Arc::clone(model),
            hello: hello.clone(),
            authority: Arc::clone(&self.authority),
            process: connections.process(&hello),
            ready: ready.clone(),
            batch_limit: connections.batch_limits.remove(id),
            flags: Arc::default(),
            changed: Arc::clone(&self.changed),
        };
        let connection = Connection {
            number: serving.number,
            model: Arc::clone(model),
            hello,
            digest: endpoint.digest,
            flags: Arc::clone(&serving.flags),
            task: tokio::spawn(serving.keep()),
        };
        connections.by_id.insert(id.clone(), connection);
    }

    /// The batch limit of each replica in rotation.
    pub fn batch_limits(&self) -> BTreeMap<ReplicaId, u32> {
        let connections = self.connections.lock();
        let limit = |(id, one): (&ReplicaId, &Connection)| {
            Some((id.clone(), one.model.dispatcher().batch_limit(one.number)?))
        };
        connections.by_id.iter().filter_map(limit).collect()
    }

    /// Has replicas begin with these batch limits when they are attached.
    pub fn resume_limits(&self, limits: impl IntoIterator<Item = (ReplicaId, u32)>) {
        self.connections.lock().batch_limits.extend(limits);
    }

    pub fn admit(&self, id: &ReplicaId) {
        if let Some(connection) = self.connections.lock().by_id.get(id) {
            connection.flags.admit();
        }
    }

    pub fn drain(&self, id: &ReplicaId) {
        if let Some(connection) = self.connections.lock().by_id.get(id) {
            connection.flags.draining.store(true, Ordering::Release);
            connection.model.dispatcher().drain(connection.number);
        }
    }

    /// Closes the connection to a replica; the requests it has are retried on others.
    pub fn detach(&self, id: &ReplicaId) {
        self.connections.lock().detach(id);
    }

    pub fn links(&self) -> BTreeMap<ReplicaId, Link> {
        let connections = self.connections.lock();
        connections.by_id.iter().map(|(id, one)| (id.clone(), one.link())).collect()
    }

    /// Changes with the state of any connection.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub fn close(&self) {
        let mut connections = self.connections.lock();
        connections.closed = true;
        for connection in connections.by_id.drain().map(|(_, connection)| connection) {
            connection.task.abort();
        }
    }
}

impl Connection {
    fn link(&self) -> Link {
        let is = |flag: &std::sync::atomic::AtomicBool| flag.load(Ordering::Acquire);
        let busy = || self.model.dispatcher().is_busy(self.number);
        if is(&self.flags.draining) {
            Link::Draining { busy: busy() }
        } else if is(&self.flags.attached) {
            Link::InRotation { busy: busy() }
        } else if is(&self.flags.connected) {
            Link::Connected
        } else {
            Link::Connecting
        }
    }
}

impl Connections {
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

    fn detach(&mut self, id: &ReplicaId) {
        let Some(connection) = self.by_id.remove(id) else { return };
        connection.task.abort();
        connection.model.dispatcher().detach(connection.number);
        connection.model.left(connection.digest);
    }
}

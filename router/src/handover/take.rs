//! The new router's side of a handover.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use control::plane::DataPlane;
use policy::fleet::{Link, ReplicaId};
use tokio::{net::UnixStream, time::timeout};

use super::{
    message::{FromNew, FromOld, Frozen, Hello, Offer, VERSIONS},
    socket::{Channel, SocketError},
};
use crate::{metrics::Carried, registry::Registry};

/// How long the running router may take for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long it may take to end the round under way and to close the state.
const FREEZE_WAIT: Duration = Duration::from_secs(60);
/// How long a replica may take to be connected to that the running router is connected to.
const ATTACH_WAIT: Duration = Duration::from_secs(10);

/// How long the other process may be silent while it ends; it counts all the time.
const LAST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    #[error("the running router refuses: {why}")]
    Refused { why: String },
    #[error("the running router said something out of turn")]
    OutOfTurn,
    #[error("cannot connect to replica {replica} of worker {worker:?} within {ATTACH_WAIT:?}")]
    Unreachable { worker: String, replica: u32 },
    #[error("handover: {0}")]
    Socket(#[from] SocketError),
}

/// What the running router gave, and the way to it.
#[derive(Debug)]
pub struct Taken {
    channel: Channel,
    offer: Offer,
    listeners: BTreeMap<String, OwnedFd>,
}

/// Asks the router that listens at `path` to hand over; none, if nobody does.
///
/// # Errors
/// If it refuses, or cannot be understood. It serves on then.
pub async fn ask(path: &Path, hello: &Hello) -> Result<Option<Taken>, TakeError> {
    let stream = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) if nobody(&error) => return Ok(None),
        Err(error) => return Err(SocketError::Io(error).into()),
    };
    let mut channel = Channel::over(stream)?;
    channel.say(&FromNew::Hello(hello.clone())).await?;
    let offer = match channel.hear(ANSWER_WAIT).await? {
        FromOld::Offer(offer) => *offer,
        FromOld::Refused { why } => return Err(TakeError::Refused { why }),
        FromOld::Frozen(_) | FromOld::Counts { .. } | FromOld::Go => {
            return Err(TakeError::OutOfTurn);
        }
    };
    let descriptors = channel.receive(offer.listeners.len(), ANSWER_WAIT).await?;
    let listeners = offer.listeners.iter().cloned().zip(descriptors).collect();
    Ok(Some(Taken { channel, offer, listeners }))
}

/// What this program says first.
pub fn hello(program: String, command: &str) -> Hello {
    Hello { versions: VERSIONS.to_vec(), program, command: command.to_owned() }
}

fn nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

impl Taken {
    /// The version of the program that is replaced.
    pub fn program(&self) -> &str {
        &self.offer.program
    }

    /// The directory of sockets that the one before would remove.
    pub fn run_dir(&self) -> Option<&PathBuf> {
        self.offer.run_dir.as_ref()
    }

    /// The listener `name`, if it is the one that the file asks for: of any port, if it says 0.
    pub(crate) fn listener(&mut self, name: &str, wanted: SocketAddr) -> Option<TcpListener> {
        let listener = TcpListener::from(self.listeners.remove(name)?);
        let address = listener.local_addr().ok()?;
        let same =
            address.ip() == wanted.ip() && (wanted.port() == 0 || wanted.port() == address.port());
        same.then_some(listener)
    }

    /// Connects to every replica that the running router has in rotation, and has it freeze.
    pub(crate) async fn attach(&mut self, registry: &Registry) -> Result<Frozen, TakeError> {
        let limits = std::mem::take(&mut self.offer.batch_limits);
        let limits = limits.into_iter().flat_map(|(worker, limits)| {
            let id = move |replica| ReplicaId { worker: worker.clone(), replica };
            limits.into_iter().map(move |(replica, rows)| (id(replica), rows))
        });
        registry.plane().connections().resume_limits(limits);
        for (name, report) in std::mem::take(&mut self.offer.workers) {
            registry.fleet().seed(&name, report);
        }
        self.attached(registry).await?;
        self.channel.say(&FromNew::Attached).await?;
        match self.channel.hear(FREEZE_WAIT).await? {
            FromOld::Frozen(frozen) => Ok(*frozen),
            FromOld::Refused { why } => Err(TakeError::Refused { why }),
            FromOld::Offer(_) | FromOld::Counts { .. } | FromOld::Go => Err(TakeError::OutOfTurn),
        }
    }

    async fn attached(&self, registry: &Registry) -> Result<(), TakeError> {
        let ids = self.offer.serving.iter().flat_map(|(worker, replicas)| {
            replicas.iter().map(|replica| ReplicaId { worker: worker.clone(), replica: *replica })
        });
        let plane = registry.plane();
        let mut waiting: Vec<ReplicaId> = ids.collect();
        waiting.iter().for_each(|id| plane.admit(id));
        let all = async {
            loop {
                let mut changed = plane.changed();
                let links = plane.replicas();
                // A model that the new file has not is not connected to.
                waiting.retain(|id| match links.get(id) {
                    Some(Link::Connecting | Link::Connected) => true,
                    Some(Link::InRotation { .. } | Link::Draining { .. }) | None => false,
                });
                if waiting.is_empty() {
                    return;
                }
                let _ = changed.changed().await;
            }
        };
        if timeout(ATTACH_WAIT, all).await.is_ok() {
            return Ok(());
        }
        match waiting.pop() {
            Some(ReplicaId { worker, replica }) => Err(TakeError::Unreachable { worker, replica }),
            None => Ok(()),
        }
    }

    /// Says that this process could serve, and returns when it shall accept.
    pub(crate) async fn ready(&mut self, carried: &Carried) -> Result<(), TakeError> {
        self.channel.say(&FromNew::Ready).await?;
        loop {
            match self.channel.hear(ANSWER_WAIT).await? {
                FromOld::Counts { page } => carried.set(&page),
                FromOld::Go => return Ok(()),
                FromOld::Refused { why } => return Err(TakeError::Refused { why }),
                FromOld::Offer(_) | FromOld::Frozen(_) => return Err(TakeError::OutOfTurn),
            }
        }
    }

    pub(crate) async fn accepting(&mut self) -> Result<(), TakeError> {
        Ok(self.channel.say(&FromNew::Accepting).await?)
    }

    /// Adds what the other process counts until its end.
    pub(crate) async fn last_counts(mut self, carried: &Carried) {
        while let Ok(FromOld::Counts { page }) = self.channel.hear(LAST_WAIT).await {
            carried.set(&page);
        }
    }
}

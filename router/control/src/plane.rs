//! What the control plane asks of the data plane.

use std::{collections::BTreeMap, fmt};

use policy::fleet::{Advice, Link, ReplicaId, SliceName, Traffic};
use protocol::ReadyReplica;
use tokio::sync::watch;

/// The data plane, as the control plane sees it.
///
/// The fleet connects and disconnects replicas as workers report them, at every router; the leader
/// admits and drains them.
pub trait DataPlane: fmt::Debug + Send + Sync + 'static {
    /// Connects to a replica, which gets batches once it is admitted. Repeating this changes nothing.
    fn attach(&self, id: &ReplicaId, replica: &Attach<'_>);

    /// Lets a replica be given batches.
    fn admit(&self, id: &ReplicaId);

    /// Gives a replica no more batches; [`DataPlane::replicas`] says when it has none left.
    fn drain(&self, id: &ReplicaId);

    /// Closes the connection to a replica.
    fn detach(&self, id: &ReplicaId);

    /// Every replica that was attached, and how its connection is.
    fn replicas(&self) -> BTreeMap<ReplicaId, Link>;

    /// By model, its requests since the start.
    fn traffic(&self) -> BTreeMap<String, Traffic>;

    /// What clients of a model are answered while it has no replica in rotation. A failure stands until
    /// a replica comes into rotation.
    fn advise(&self, model: &str, advice: Advice);

    /// Changes with the connection of any replica.
    fn changed(&self) -> watch::Receiver<()>;
}

/// A replica to connect to.
#[derive(Clone, Copy, Debug)]
pub struct Attach<'a> {
    /// The name of its model; a model that is not served is left out.
    pub model: &'a str,
    /// Its slice.
    pub slice: &'a SliceName,
    /// The profile of its slice.
    pub profile: &'a str,
    /// Whether its GPU does not exist.
    pub simulated: bool,
    /// The revision of its model: responses of another are not cached beside its own.
    pub digest: u64,
    /// The version of its model.
    pub version: &'a str,
    /// How it is reached, and what its warm-up showed.
    pub ready: &'a ReadyReplica,
}

//! The data plane: the served models and the connections to their replicas.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use control::plane::{Attach, DataPlane};
use policy::fleet::{Absent, Advice, Link, ReplicaId, Traffic};
use serve::{
    model::{Failure, Models, Served},
    replica::{Endpoint, Replicas},
};
use tokio::sync::watch;

#[derive(Debug)]
pub struct Plane {
    models: Arc<ArcSwap<Models>>,
    replicas: Replicas,
}

impl Plane {
    /// Of these models, which may be swapped later.
    pub fn new(models: Arc<ArcSwap<Models>>) -> Self {
        Self { models, replicas: Replicas::default() }
    }

    pub fn connections(&self) -> &Replicas {
        &self.replicas
    }
}

impl DataPlane for Plane {
    fn attach(&self, id: &ReplicaId, replica: &Attach<'_>) {
        let Attach { model, slice, profile, simulated, digest, version, ready } = *replica;
        match self.models.load().get(model) {
            Some(model) => {
                model.runs_simulated(simulated);
                self.replicas.attach(
                    id,
                    model,
                    &Endpoint { slice, profile, digest, version, ready },
                );
            }
            None => self.replicas.detach(id),
        }
    }

    fn admit(&self, id: &ReplicaId) {
        self.replicas.admit(id);
    }

    fn drain(&self, id: &ReplicaId) {
        self.replicas.drain(id);
    }

    fn detach(&self, id: &ReplicaId) {
        self.replicas.detach(id);
    }

    fn replicas(&self) -> BTreeMap<ReplicaId, Link> {
        self.replicas.links()
    }

    fn traffic(&self) -> BTreeMap<String, Traffic> {
        let models = self.models.load();
        models.iter().map(|model| (model.name().to_owned(), model.traffic())).collect()
    }

    fn advise(&self, model: &str, advice: Advice) {
        let models = self.models.load();
        let Some(model) = models.get(model) else { return };
        if let Some(loads_in) = advice.loads_in {
            model.dispatcher().expect_within(loads_in);
        }
        match advice.absent {
            Absent::Loading(wait) => model.waits_for(&wait.to_string()),
            Absent::Asleep => model.sleep(),
            Absent::Failed { why, returns } => {
                model.failed(Failure { reason: why, returns, unplaced: false });
            }
            Absent::Unplaced { why } => {
                model.failed(Failure { reason: why, returns: true, unplaced: true });
            }
        }
    }

    fn changed(&self) -> watch::Receiver<()> {
        self.replicas.changed()
    }
}

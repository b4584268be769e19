//! The replicas that workers report, and the connections to them.
//!
//! A report replaces what was known of its slice. For every ready replica there is one task that
//! connects, brings it into rotation, carries replies in, and takes it out again when the connection
//! ends; while the report stands it tries again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use oip::{Signature, TensorSpec};
use parking_lot::Mutex;
use protocol::{ReadyReplica, ReplicaReport, ReplicaState, Report, Shapes, WarmPoint};
use tokio::{
    sync::{Notify, futures::Notified, mpsc},
    task::JoinHandle,
    time::sleep,
};

use crate::{
    dispatch::Replica,
    model::{Failure, Model},
    state::{self, ReplicaPhase},
    transport::{self, Hello, LinkError},
};

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LONGEST: Duration = Duration::from_secs(2);

/// What the workers last said.
#[derive(Debug)]
pub struct Fleet {
    models: HashMap<String, Arc<Model>>,
    known: Mutex<Known>,
    changed: Arc<Notify>,
}

/// What a worker said of one slice.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    /// The executor's process, while there is one.
    pub pid: Option<u32>,
    /// How often the executor was started again.
    pub restarts: u32,
    /// The replicas there.
    pub replicas: Vec<state::ReplicaState>,
}

#[derive(Debug, Default)]
struct Known {
    reports: BTreeMap<String, Report>,
    served: HashMap<u32, Connection>,
}

#[derive(Debug)]
struct Connection {
    hello: Hello,
    task: JoinHandle<()>,
}

impl Fleet {
    /// A fleet of nobody yet, for these models.
    pub fn new(models: &[Arc<Model>]) -> Self {
        let by_name = |model: &Arc<Model>| (model.config().name.clone(), Arc::clone(model));
        Self {
            models: models.iter().map(by_name).collect(),
            known: Mutex::default(),
            changed: Arc::default(),
        }
    }

    /// Takes reports until no worker is left to send one.
    pub async fn listen(&self, mut reports: mpsc::Receiver<Report>) {
        while let Some(report) = reports.recv().await {
            self.take(report);
        }
    }

    /// Done when a replica next comes into rotation or a report comes in.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Hangs up on every replica, so that their end is no news.
    pub fn close(&self) {
        for connection in self.known.lock().served.drain().map(|(_, connection)| connection) {
            connection.task.abort();
        }
    }

    /// What was last reported of every slice, by label, without its executor's token.
    pub fn reported(&self) -> BTreeMap<String, Reported> {
        let known = self.known.lock();
        known.reports.iter().map(|(slice, report)| (slice.clone(), reported(report))).collect()
    }

    fn take(&self, report: Report) {
        let mut known = self.known.lock();
        for replica in &report.replicas {
            let Some(model) = self.models.get(&replica.model) else {
                tracing::warn!(model = replica.model, "a replica of an unknown model was reported");
                continue;
            };
            match &replica.state {
                ReplicaState::Ready(ready) => {
                    let serving = Serving {
                        id: replica.replica,
                        slice: report.slice.clone(),
                        model: Arc::clone(model),
                        hello: Hello { address: ready.address.clone(), token: ready.token.clone() },
                        ready: (**ready).clone(),
                        changed: Arc::clone(&self.changed),
                    };
                    known.connect(serving);
                }
                ReplicaState::Failed { reason } => {
                    // Without a process it is the executor that ended; the worker starts another.
                    let returns = report.pid.is_none();
                    model.failed(Failure { reason: reason.clone(), returns });
                    known.disconnect(replica.replica, model);
                }
                ReplicaState::Starting | ReplicaState::Loading | ReplicaState::Warming { .. } => {
                    known.disconnect(replica.replica, model)
                }
            }
        }
        known.reports.insert(report.slice.clone(), report);
        self.changed.notify_waiters();
    }
}

impl Known {
    fn connect(&mut self, serving: Serving) {
        let id = serving.id;
        if self.served.get(&id).is_some_and(|connection| connection.hello == serving.hello) {
            return;
        }
        self.disconnect(id, &serving.model);
        let hello = serving.hello.clone();
        self.served.insert(id, Connection { hello, task: tokio::spawn(serving.keep()) });
    }

    fn disconnect(&mut self, id: u32, model: &Model) {
        if let Some(connection) = self.served.remove(&id) {
            connection.task.abort();
            model.dispatcher().detach(id);
        }
    }
}

struct Serving {
    id: u32,
    slice: String,
    model: Arc<Model>,
    hello: Hello,
    ready: ReadyReplica,
    changed: Arc<Notify>,
}

impl Serving {
    async fn keep(self) {
        let mut pause = RETRY_FIRST;
        loop {
            let ended = self.serve(&mut pause).await;
            self.model.dispatcher().detach(self.id);
            let (model, slice) = (&self.model.config().name, &self.slice);
            tracing::warn!(model, slice, cause = %chain(&ended), "a replica's connection ended");
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_LONGEST);
        }
    }

    /// Serves one connection to its end.
    async fn serve(&self, pause: &mut Duration) -> LinkError {
        let (link, mut received) = match transport::connect(&self.hello).await {
            Ok(connected) => connected,
            Err(error) => return error,
        };
        *pause = RETRY_FIRST;
        let replica = Replica {
            id: self.id,
            slice: self.slice.clone(),
            link,
            measured: measured(&self.ready.warmup),
            signature: Arc::new(signature(&self.ready.signature)),
        };
        self.model.attach(replica, &self.ready.platform, self.ready.max_batch);
        self.changed.notify_waiters();
        tracing::info!(model = self.model.config().name, slice = self.slice, "replica in rotation");
        loop {
            match received.next().await {
                Ok((reply, body)) => self.model.dispatcher().returned(self.id, &reply, &body),
                Err(error) => return error,
            }
        }
    }
}

/// The middle time of each warmed size.
fn measured(warmup: &[WarmPoint]) -> Vec<(u32, Duration)> {
    let middle = |point: &WarmPoint| {
        let mut times = point.compute_us.clone();
        times.sort_unstable();
        times.get(times.len() / 2).map(|micros| (point.batch, Duration::from_micros(*micros)))
    };
    let points: Vec<_> = warmup.iter().filter_map(middle).collect();
    if points.is_empty() { vec![(1, Duration::from_millis(1))] } else { points }
}

fn signature(shapes: &Shapes) -> Signature {
    let specs = |tensors: &[protocol::TensorShape]| {
        tensors
            .iter()
            .filter_map(|tensor| {
                let datatype = tensor.datatype.parse().ok()?;
                Some(TensorSpec {
                    name: tensor.name.clone(),
                    datatype,
                    shape: tensor.shape.clone(),
                })
            })
            .collect()
    };
    Signature { inputs: specs(&shapes.inputs), outputs: specs(&shapes.outputs) }
}

fn reported(report: &Report) -> Reported {
    let replica = |replica: &ReplicaReport| {
        let mut shown = state::ReplicaState {
            replica: replica.replica,
            model: replica.model.clone(),
            state: ReplicaPhase::Starting,
            reason: None,
            memory_bytes: None,
            load_ms: None,
        };
        shown.state = match &replica.state {
            ReplicaState::Starting => ReplicaPhase::Starting,
            ReplicaState::Loading => ReplicaPhase::Loading,
            ReplicaState::Warming { .. } => ReplicaPhase::Warming,
            ReplicaState::Failed { reason } => {
                shown.reason = Some(reason.clone());
                ReplicaPhase::Failed
            }
            ReplicaState::Ready(ready) => {
                shown.memory_bytes = Some(ready.memory_bytes);
                shown.load_ms = Some(ready.load_us as f64 / 1e3);
                ReplicaPhase::Ready
            }
        };
        shown
    };
    Reported {
        pid: report.pid,
        restarts: report.restarts,
        replicas: report.replicas.iter().map(replica).collect(),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
